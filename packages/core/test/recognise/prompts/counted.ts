import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

export const COUNTED_PROMPTS: readonly PromptCase[] = [
  {
    name: 'numbered passages under a lead-in, question behind',
    texts: [
      [
        'user',
        `Use these sources to answer.\n\nSources:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n[3] ${ORCHARD}\n\nQuestion: When are pears picked?`,
      ],
    ],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN, ORCHARD], counted: true }],
  },
  {
    name: 'numbered passages, citations asked for',
    texts: [
      ['system', 'Answer from the search results and cite them like [1].'],
      ['user', `Search results:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n\nWhat do lanterns burn?`],
    ],
    blocks: [{ format: 'numbered', text: 1, documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'numbered passages, the question names one',
    texts: [['user', `Context:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n\nWhat does [2] say about oil?`]],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'numbered passages, the model has cited before',
    texts: [
      ['user', 'Tell me about the harbour.'],
      ['assistant', 'It was dredged in 1931 [1].'],
      ['user', `Context:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n\nAnd the lanterns?`],
    ],
    blocks: [{ format: 'numbered', text: 2, documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'numbered from zero, with colons and empty lines',
    texts: [
      [
        'system',
        `Relevant documents:\n\n[0]: ${GLACIER}\n\n[1]: ${CLOCK}\n\n[2]: ${BRIDGE}\n\nAnswer in one sentence.`,
      ],
      ['user', 'When does the clock stop?'],
    ],
    blocks: [{ format: 'numbered', documents: [GLACIER, CLOCK, BRIDGE], counted: true }],
  },
  {
    name: 'a search tool that repeats its numbers',
    texts: [
      [
        'tool',
        `[1] Title: Port history\n[1] URL: https://port.example\n[1] Content: ${HARBOUR}\n\n[2] Title: Lamps\n[2] URL: https://lamp.example\n[2] Content: ${LANTERN}`,
      ],
    ],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'the last passage may go on before the question: it stays',
    texts: [
      ['user', `Context:\n[1] ${LANTERN}\n[2] ${HARBOUR}\n[3] ${ORCHARD}\n\nSome are dried.\n\nWhen are pears picked?`],
    ],
    blocks: [{ format: 'numbered', documents: [LANTERN, HARBOUR], counted: true }],
  },
  {
    name: 'passages of several paragraphs: the last one, which nothing closes, stays',
    texts: [
      [
        'system',
        `Context:\n[1] ${FERRY}\n[2] ${HARBOUR}\n\nIt has two basins.\n[3] ${ORCHARD}\n\nYou speak as the keeper of the island would, in short words.`,
      ],
    ],
    blocks: [{ format: 'numbered', documents: [FERRY, HARBOUR], counted: true }],
  },
  {
    name: 'passages of several paragraphs before a question of the user',
    texts: [
      [
        'user',
        `Documents:\n[1] ${FERRY}\n\n[2] ${HARBOUR}\n\nIt has two basins.\n\nHow many passengers does the ferry take?`,
      ],
    ],
    blocks: [{ format: 'numbered', documents: [FERRY, HARBOUR], counted: true }],
  },
  {
    name: 'LlamaIndex citation style: Source n with a rule under it',
    texts: [
      [
        'user',
        `Please provide an answer based solely on the sources below.\n------\nSource 1:\n${HARBOUR}\n\nSource 2:\n${LANTERN}\n\n------\nQuery: When was the harbour dredged?\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'AnythingLLM style: context blocks with closing lines',
    texts: [
      [
        'system',
        `Given the conversation and context, reply to the prompt.\nContext:\n[CONTEXT 0]:\n${FERRY}\n[END CONTEXT 0]\n\n[CONTEXT 1]:\n${CLOCK}\n[END CONTEXT 1]\n\n`,
      ],
      ['user', 'Who winds the clock?'],
    ],
    blocks: [{ format: 'headed', documents: [FERRY, CLOCK], counted: true }],
  },
  {
    name: 'Document [n](Title: …) of the long-context papers',
    texts: [
      [
        'user',
        `Write a good answer for the question using only the search results.\n\nDocument [1](Title: Port) ${HARBOUR}\nDocument [2](Title: Lamps) ${LANTERN}\nDocument [3](Title: Pears) ${ORCHARD}\n\nQuestion: what do lamps burn\nAnswer:`,
      ],
    ],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN, ORCHARD], counted: true }],
  },
  {
    name: 'Markdown headings that count documents',
    texts: [
      ['user', `## Document 1\n${GLACIER}\n\n## Document 2\n${CLOCK}\n\n## Question\nHow often is the clock wound?`],
    ],
    blocks: [{ format: 'headed', documents: [GLACIER, CLOCK] }],
  },
  {
    name: 'rules around the headings',
    texts: [['tool', `--- Passage 1 ---\n${FERRY}\n\n--- Passage 2 ---\n${BRIDGE}\n\n--- Passage 3 ---\n${CLOCK}\n`]],
    blocks: [{ format: 'headed', documents: [FERRY, BRIDGE, CLOCK], counted: true }],
  },
  {
    name: 'bold headings, the question names document 2',
    texts: [
      ['user', `**Document 1:**\n${HARBOUR}\n\n**Document 2:**\n${LANTERN}\n\nQuestion: does document 2 speak of oil?`],
    ],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'numbers with gaps are names, not places',
    texts: [['user', `Chunk 17:\n${GLACIER}\n\nChunk 42:\n${CLOCK}\n\nQuestion: how thick?`]],
    blocks: [{ format: 'headed', documents: [GLACIER, CLOCK], counted: false }],
  },
  {
    name: 'German headings',
    texts: [['user', `Quelle 1: ${HARBOUR}\nQuelle 2: ${LANTERN}\n\nFrage: Was verbrennen die Laternen?`]],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN] }],
  },
];
