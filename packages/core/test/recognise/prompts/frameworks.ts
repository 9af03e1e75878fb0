import { BRIDGE, CLOCK, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

const METER = 'export function read(meter: Meter) { return meter.manifold.at(0); } // one house';
const PRICE = 'export const price = (hours: number) => hours * 0.21 + 4; // with the standing charge';

/** Prompts that frameworks, chat applications, editors and hosted tools put together. */
export const FRAMEWORK_PROMPTS: readonly PromptCase[] = [
  {
    name: "LangChain's retriever tool: the source as a Python dictionary",
    texts: [
      [
        'tool',
        `Source: {'source': 'port.pdf', 'page': 3}\nContent: ${HARBOUR}\n\nSource: {'source': 'port.pdf', 'page': 8}\nContent: ${BRIDGE}`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, BRIDGE] }],
  },
  {
    name: 'LangChain.js documents with the lines they come from',
    texts: [
      [
        'tool',
        JSON.stringify([
          { pageContent: HARBOUR, metadata: { source: 'a.pdf', loc: { lines: { from: 1, to: 9 } } } },
          { pageContent: CLOCK, metadata: { source: 'a.pdf', loc: { lines: { from: 10, to: 20 } } } },
        ]),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, CLOCK] }],
  },
  {
    name: 'LlamaIndex nodes of PDF pages: a page alone is no name',
    texts: [
      [
        'user',
        `Context information is below.\n---------------------\npage_label: 3\nfile_path: docs/port.pdf\n\n${HARBOUR}\n\npage_label: 3\nfile_path: docs/oil.pdf\n\n${LANTERN}\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: How deep?\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN], ids: ['docs/port.pdf 3', 'docs/oil.pdf 3'] }],
  },
  {
    name: 'Haystack template that counts documents in brackets',
    texts: [
      [
        'user',
        `Given the following information, answer the question.\n\nContext:\nDocument[1]: ${HARBOUR}\nDocument[2]: ${LANTERN}\nDocument[3]: ${CLOCK}\n\nQuestion: How long?\nAnswer:`,
      ],
    ],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN, CLOCK], counted: true }],
  },
  {
    name: 'Open WebUI with guidelines and a query in a tag',
    texts: [
      [
        'user',
        `### Task:\nRespond to the user query using the provided context, with inline citations in the format [id] only when the <source> tag has an explicit id attribute (e.g., <source id="1">).\n\n### Guidelines:\n- If you don't know the answer, clearly state that.\n\n<context>\n<source id="1" name="port.pdf">${HARBOUR}</source>\n<source id="2" name="port.pdf">${BRIDGE}</source>\n</context>\n\n<user_query>\nHow deep?\n</user_query>\n`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, BRIDGE], counted: true }],
  },
  {
    name: 'AnythingLLM system prompt with an indented first context',
    texts: [
      [
        'system',
        `Given the following conversation, relevant context, and a follow up question, reply with an answer.\nContext:\n    [CONTEXT 0]:\n${GLACIER}\n[END CONTEXT 0]\n\n[CONTEXT 1]:\n${CLOCK}\n[END CONTEXT 1]\n\n`,
      ],
      ['user', 'How thick was it?'],
    ],
    blocks: [{ format: 'headed', documents: [GLACIER, CLOCK], counted: true }],
  },
  {
    name: 'n8n vector store tool: documents with scores',
    texts: [
      [
        'tool',
        JSON.stringify([
          { document: { pageContent: ORCHARD, metadata: { source: 'blob' } }, score: 0.83 },
          { document: { pageContent: CLOCK, metadata: { source: 'blob' } }, score: 0.81 },
        ]),
      ],
    ],
    blocks: [{ format: 'json', documents: [ORCHARD, CLOCK] }],
  },
  {
    name: 'an editor that attaches files',
    texts: [
      [
        'user',
        `<attached_files>\n<code_selection path="src/meter.ts" lines="1-20">\n${METER}\n</code_selection>\n<code_selection path="src/price.ts" lines="3-9">\n${PRICE}\n</code_selection>\n</attached_files>\n<user_query>Why four?</user_query>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [METER, PRICE], counted: false, ids: ['src/meter.ts', 'src/price.ts'] }],
  },
  {
    name: 'an editor that puts files behind the task, and the time behind both',
    texts: [
      [
        'user',
        `<task>\nCompare 'src/meter.ts' and 'src/price.ts'\n</task>\n\n<file_content path="src/meter.ts">\n${METER}\n</file_content>\n\n<file_content path="src/price.ts">\n${PRICE}\n</file_content>\n\n<environment_details>\n# Current Time\n11/21/2026\n</environment_details>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [METER, PRICE], counted: false, ids: ['src/meter.ts', 'src/price.ts'] }],
  },
  {
    name: 'search results to be cited by number, the question behind',
    texts: [
      ['system', 'You answer with citations like [1] after each sentence.'],
      [
        'user',
        `Search results:\n\n[1] The port (https://v.example/port)\n${HARBOUR}\n\n[2] Lamps (https://v.example/oil)\n${LANTERN}\n\n[3] Pears (https://v.example/pears)\n${ORCHARD}\n\nUser question: How long?`,
      ],
    ],
    blocks: [{ format: 'numbered', text: 1, documents: [HARBOUR, LANTERN, ORCHARD], counted: true }],
  },
  {
    name: "a tool's result in the AI SDK's wrapper",
    texts: [
      [
        'tool',
        JSON.stringify({
          type: 'json',
          value: {
            results: [
              { id: 'k1', content: GLACIER, similarity: 0.81 },
              { id: 'k2', content: BRIDGE, similarity: 0.79 },
            ],
          },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [GLACIER, BRIDGE], ids: ['k1', 'k2'] }],
  },
  {
    name: "OpenAI's search of a vector store: the text in a part",
    texts: [
      [
        'tool',
        JSON.stringify({
          object: 'vector_store.search_results.page',
          search_query: ['depth'],
          data: [
            { file_id: 'f1', filename: 'port.pdf', score: 0.9, content: [{ type: 'text', text: HARBOUR }] },
            { file_id: 'f2', filename: 'oil.pdf', score: 0.8, content: [{ type: 'text', text: LANTERN }] },
          ],
          has_more: false,
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['port.pdf', 'oil.pdf'] }],
  },
  {
    name: 'results of a file search as elements on one line',
    texts: [
      [
        'user',
        `<sources><result file_id='f1' file_name='port.pdf'><content>${HARBOUR}</content></result><result file_id='f2' file_name='oil.pdf'><content>${LANTERN}</content></result></sources>\n\nQuery: 'How deep?'`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'a search server: title, description, URL',
    texts: [
      [
        'tool',
        `Title: The port\nDescription: ${HARBOUR}\nURL: https://v.example/port\n\nTitle: Lamps\nDescription: ${LANTERN}\nURL: https://v.example/oil`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN], ids: ['The port', 'Lamps'] }],
  },
  {
    name: 'a Russian question about document 2',
    texts: [['user', `Контекст:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n\nВопрос: Что сказано в документе 2?`]],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN], counted: true }],
  },
];

const none = (name: string, ...texts: PromptCase['texts']): PromptCase => ({ name, texts, blocks: [] });

/** From the same tools, where nothing says what is a document, or the order means something. */
export const FRAMEWORK_NEGATIVES: readonly PromptCase[] = [
  none("LangChain's prompt of the hub: passages that only empty lines part", [
    'user',
    `Use the following pieces of retrieved context to answer the question.\nQuestion: How deep? \nContext: ${HARBOUR}\n\n${LANTERN}\n\n${CLOCK} \nAnswer:`,
  ]),
  none('Dify context: one line after the other', [
    'system',
    `Use the following context as your learned knowledge, inside <context></context> XML tags.\n\n<context>\n${HARBOUR}\n${LANTERN}\n${CLOCK}\n</context>\n\nWhen answer to user:\n- If you don't know, just say that you don't know.`,
  ]),
  none('Flowise prompt: context between rules', [
    'user',
    `Using the provided context, answer the user's question.\n------------\nCONTEXT: ${HARBOUR}\n\n${LANTERN}\n------------\nREMEMBER: If there is no relevant information within the context, just say "Hmm, I'm not sure."`,
  ]),
  none('files in fences that are named by their paths', [
    'user',
    `\`\`\`src/meter.ts\n${METER}\n\`\`\`\n\`\`\`src/price.ts\n${PRICE}\n\`\`\`\nWhy four?`,
  ]),
  none('parts of one answer of an MCP server', [
    'tool',
    JSON.stringify({
      content: [
        { type: 'text', text: HARBOUR },
        { type: 'text', text: LANTERN },
      ],
    }),
  ]),
  none('comments on an issue, in the order of the talk', [
    'tool',
    JSON.stringify([
      { id: 91, user: { login: 'a' }, created_at: '2026-01-02T10:00:00Z', body: HARBOUR },
      { id: 92, user: { login: 'b' }, created_at: '2026-01-03T10:00:00Z', body: LANTERN },
    ]),
  ]),
  none('mails that answer each other', [
    'tool',
    JSON.stringify({
      results: [
        { from: 'a@v.example', subject: 'Port', body: HARBOUR },
        { from: 'b@v.example', subject: 'Re: Port', body: LANTERN },
      ],
    }),
  ]),
  none('a change log whose versions are links', [
    'tool',
    `## [1.2.0](https://v.example/1.2.0)\n\n- ${HARBOUR}\n\n## [1.1.0](https://v.example/1.1.0)\n\n- ${LANTERN}`,
  ]),
  none('what was said in a meeting', [
    'user',
    `<meeting>\n<entry speaker="Ann">${HARBOUR}</entry>\n<entry speaker="Bo">${LANTERN}</entry>\n</meeting>\nWho spoke of oil?`,
  ]),
  none('lines of a log as JSON', [
    'tool',
    [HARBOUR, LANTERN].map((message, ts) => JSON.stringify({ level: 'info', ts, message })).join('\n'),
  ]),
];
