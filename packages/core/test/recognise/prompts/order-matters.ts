import { BRIDGE, CLOCK, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

const none = (name: string, ...texts: PromptCase['texts']): PromptCase => ({ name, texts, blocks: [] });
const tool = (name: string, value: unknown): PromptCase => none(name, ['tool', JSON.stringify(value)]);

const web = {
  results: [
    { url: 'https://port.example', description: HARBOUR },
    { url: 'https://lamp.example', description: LANTERN },
  ],
};
/** Lists of two documents each, whose order stays unless `moves`. */
const lists = (name: string, value: unknown, { moves = false, count = 1 } = {}): PromptCase => ({
  name,
  texts: [['tool', JSON.stringify(value)]],
  blocks: Array.from({ length: count }, () => ({
    format: 'json',
    documents: ['', ''],
    ...(!moves && { fixed: true }),
  })),
});

/** Lists of documents that the same JSON refers to by places, and some that it does not. */
const INDEXED: readonly PromptCase[] = [
  lists('Brave: the order in which lists are to be shown', {
    web,
    mixed: {
      type: 'mixed',
      main: [
        { type: 'web', index: 0, all: false },
        { type: 'videos', all: true },
        { type: 'web', index: 1, all: false },
      ],
      side: [],
    },
  }),
  lists('an answer whose citations have places', {
    answer: 'It was dredged in 1931.',
    citations: [{ start: 0, end: 22, source_index: 1 }],
    ...web,
  }),
  lists('supports of an answer, as Google writes them', {
    groundingSupports: [{ segment: { endIndex: 22 }, groundingChunkIndices: [0, 1] }],
    sources: web.results,
  }),
  lists(
    'citations with words of their own',
    {
      web,
      citations: [
        { index: 1, text: GLACIER },
        { index: 0, text: CLOCK },
      ],
    },
    { count: 2 },
  ),
  lists(
    'results that count themselves, in two lists',
    {
      web,
      news: [
        { index: 0, description: GLACIER },
        { index: 1, description: CLOCK },
      ],
    },
    { moves: true, count: 2 },
  ),
  lists(
    'a reranked list: its places are those of another',
    {
      results: [
        { index: 3, relevance_score: 0.9, document: { text: HARBOUR } },
        { index: 0, relevance_score: 0.4, document: { text: LANTERN } },
      ],
      meta: { index: 2, warnings: [], shards: [{ index: 'lamps' }, { index: 0.5 }] },
    },
    { moves: true },
  ),
];

/** What has the form of documents, and an order that means something. */
export const ORDERED_PROMPTS: readonly PromptCase[] = [
  ...INDEXED,
  none('pages of one file as elements', [
    'user',
    `<pages>\n<page number="1">${HARBOUR}</page>\n<page number="2">${LANTERN}</page>\n<page number="3">${GLACIER}</page>\n</pages>\nSummarise the file.`,
  ]),
  tool('pages of one file as JSON', {
    file: 'port.pdf',
    pages: [
      { page: 1, text: HARBOUR },
      { page: 2, text: LANTERN },
      { page: 3, text: GLACIER },
    ],
  }),
  tool('chunks of one file, one after the other', {
    chunks: [
      { chunk_index: 4, content: HARBOUR },
      { chunk_index: 5, content: LANTERN },
    ],
  }),
  none('pages of one file under headings', [
    'user',
    `## Page 1: Port\n${HARBOUR}\n\n## Page 2: Lamps\n${LANTERN}\n\n## Page 3: Ice\n${GLACIER}\n\nIs anything missing?`,
  ]),
  none('slides as records', [
    'user',
    `Title: Slide 1\nContent: ${HARBOUR}\n\nTitle: Slide 2\nContent: ${LANTERN}\n\nTitle: Slide 3\nContent: ${GLACIER}\n\nQuestion: is the talk well built?`,
  ]),
  none('pages as records', [
    'tool',
    `Page: 1\nText: ${HARBOUR}\n\nPage: 2\nText: ${LANTERN}\n\nPage: 3\nText: ${CLOCK}`,
  ]),
  tool('a plan of tasks', [
    { id: 1, title: 'Dredge', description: HARBOUR, status: 'done' },
    { id: 2, title: 'Light', description: LANTERN, status: 'pending' },
  ]),
  tool('steps with actions', [
    { action: 'open', description: HARBOUR },
    { action: 'close', description: LANTERN },
  ]),
  tool('a chat without times', [
    { author: 'Ada', content: HARBOUR },
    { author: 'Bo', content: LANTERN },
  ]),
  tool('messages of a channel', {
    messages: [
      { user: 'U1', text: HARBOUR },
      { user: 'U2', text: LANTERN },
    ],
  }),
  tool('results of a series of operations', {
    results: [
      { step_number: 1, content: HARBOUR },
      { step_number: 2, content: LANTERN },
    ],
  }),
  none('turns of a talk under a line that says context', [
    'system',
    `Context of the conversation so far:\n[1] User: ${HARBOUR}\n[2] Assistant: ${LANTERN}\n[3] User: ${GLACIER}\n\nAnswer the last question.`,
  ]),
  none('a log with times under a line that says context', [
    'user',
    `Context:\n[1] 2026-01-05 10:00:01 ${HARBOUR}\n[2] 2026-01-05 10:00:02 ${LANTERN}\n[3] 2026-01-05 10:00:09 ${GLACIER}\n\nWhy did it fail?`,
  ]),
  none('memories with the time of each', [
    'system',
    `<memories>\n<memory timestamp="2026-01-05T10:00:00Z">${HARBOUR}</memory>\n<memory timestamp="2026-01-06T10:00:00Z">${LANTERN}</memory>\n</memories>`,
  ]),
  none('turns as elements in a context', [
    'system',
    `<context>\n<record role="user">${HARBOUR}</record>\n<record role="assistant">${LANTERN}</record>\n</context>`,
  ]),
  none('examples for a classifier: the last one is the question', [
    'user',
    `Label the text.\n\nTitle: Port\nText: ${HARBOUR}\nLabel: sea\n\nTitle: Lamps\nText: ${LANTERN}\nLabel: light\n\nTitle: Ice\nText: ${GLACIER}\nLabel:`,
  ]),
  none('examples of documents and what to answer', [
    'user',
    `Document 1: ${HARBOUR}\nSummary: a port\n\nDocument 2: ${LANTERN}\nSummary: a lamp\n\nDocument 3: ${GLACIER}\nSummary:`,
  ]),
  none('attributions behind the passages', [
    'user',
    `Context:\n${HARBOUR}\n[Source: port.md]\n\n${LANTERN}\n[Source: lamp.md]\n\n${GLACIER}\n[Source: ice.md]\n\nQuestion: what burns?`,
  ]),
  none('a diff of two files', [
    'user',
    `Review:\ndiff --git a/port.ts b/port.ts\n--- a/port.ts\n+++ b/port.ts\n@@ -1,2 +1,2 @@\n-// ${HARBOUR}\n+// ${LANTERN}\ndiff --git a/lamp.ts b/lamp.ts\n--- a/lamp.ts\n+++ b/lamp.ts\n@@ -1,2 +1,2 @@\n-// ${CLOCK}\n+// ${BRIDGE}\n`,
  ]),
  none('commits', [
    'tool',
    `commit 4f1c\nAuthor: Ada\nDate: Mon Jan 5 2026\n\n    ${HARBOUR}\n\ncommit 9ab2\nAuthor: Bo\nDate: Sun Jan 4 2026\n\n    ${LANTERN}\n`,
  ]),
  none('a file with line numbers', [
    'tool',
    `     1\t# ${HARBOUR}\n     2\tdocs = [x[0], x[1]]\n     3\t# ${LANTERN}\n     4\tprint(docs)\n`,
  ]),
  none('a log of a server', [
    'tool',
    `2026-01-05T10:00:00Z INFO ${HARBOUR}\n2026-01-05T10:00:01Z WARN ${LANTERN}\n2026-01-05T10:00:02Z ERROR ${GLACIER}`,
  ]),
  none('a table', ['user', `| id | text |\n| --- | --- |\n| 1 | ${HARBOUR} |\n| 2 | ${LANTERN} |\n\nSort it.`]),
  none('files in fences', [
    'user',
    `I added these files to the chat.\n\nsrc/port.ts\n\`\`\`\n// ${HARBOUR}\n\`\`\`\n\nsrc/lamp.ts\n\`\`\`\n// ${LANTERN}\n\`\`\`\n`,
  ]),
  none('parts of an answer of a tool', [
    'tool',
    JSON.stringify({
      content: [
        { type: 'text', text: HARBOUR },
        { type: 'text', text: LANTERN },
      ],
      isError: false,
    }),
  ]),
  none('a thread of mails as records', [
    'tool',
    `From: Ada\nDate: 5 Jan 2026\nSubject: Port\nBody: ${HARBOUR}\n\nFrom: Bo\nDate: 6 Jan 2026\nSubject: Re: Port\nBody: ${LANTERN}`,
  ]),
  tool("a graph's answer in two lists that belong together", {
    relevantContext: [{ text: HARBOUR }, { text: LANTERN }],
    sources: [
      { id: 'a', document: HARBOUR, score: 0.9 },
      { id: 'b', document: LANTERN, score: 0.8 },
    ],
  }),
  none('Flowise and Haystack: paragraphs between rules', [
    'system',
    `Using the provided context, answer.\n------------\n${HARBOUR}\n\n${LANTERN}\n\n${ORCHARD}\n------------\nREMEMBER: stay in the context.`,
  ]),
  none('bullets under context', [
    'user',
    `Context:\n- ${HARBOUR}\n- ${LANTERN}\n- ${ORCHARD}\n\nQuestion: what burns?`,
  ]),
  none('a subtitle file', [
    'user',
    `1\n00:00:01,000 --> 00:00:04,000\n${HARBOUR}\n\n2\n00:00:05,000 --> 00:00:09,000\n${LANTERN}\n`,
  ]),
];
