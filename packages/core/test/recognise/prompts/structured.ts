import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

const json = (value: unknown, indent?: number) => JSON.stringify(value, undefined, indent);

const NAMED = [
  { id: 'port', content: HARBOUR },
  { id: 'lamp', content: LANTERN },
];

export const STRUCTURED_PROMPTS: readonly PromptCase[] = [
  {
    name: 'Tavily style: results with url, content and score',
    texts: [
      [
        'tool',
        json({
          query: 'harbour',
          answer: null,
          results: [
            { title: 'Port', url: 'https://port.example', content: HARBOUR, score: 0.98 },
            { title: 'Lamps', url: 'https://lamp.example', content: LANTERN, score: 0.61 },
          ],
          response_time: 1.2,
        }),
      ],
    ],
    blocks: [
      {
        format: 'json',
        documents: [HARBOUR, LANTERN],
        ids: ['https://port.example', 'https://lamp.example'],
        counted: false,
      },
    ],
  },
  {
    name: 'an indented array of snippets',
    texts: [
      [
        'tool',
        json(
          [
            { url: 'a', snippet: GLACIER },
            { url: 'b', snippet: CLOCK },
            { url: 'c', snippet: BRIDGE },
          ],
          2,
        ),
      ],
    ],
    blocks: [{ format: 'json', documents: [GLACIER, CLOCK, BRIDGE], ids: ['a', 'b', 'c'] }],
  },
  {
    name: 'Serper style: organic results that count their positions',
    texts: [
      [
        'tool',
        json({
          searchParameters: { q: 'pears' },
          organic: [
            { title: 'Pears', link: 'https://pear.example', snippet: ORCHARD, position: 1 },
            { title: 'Port', link: 'https://port.example', snippet: HARBOUR, position: 2 },
          ],
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [ORCHARD, HARBOUR], counted: true }],
  },
  {
    name: 'Elasticsearch style: hits inside hits',
    texts: [
      [
        'tool',
        json({
          took: 3,
          hits: {
            total: 2,
            hits: [
              { _id: 'x7', _score: 4.2, _source: { body: HARBOUR } },
              { _id: 'x9', _score: 3.9, _source: { body: CLOCK } },
            ],
          },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, CLOCK], ids: ['x7', 'x9'] }],
  },
  {
    name: 'Qdrant style: points with payloads',
    texts: [
      [
        'tool',
        json({
          result: {
            points: [
              { id: 17, payload: { text: LANTERN } },
              { id: 4, payload: { text: GLACIER } },
            ],
          },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [LANTERN, GLACIER], counted: false }],
  },
  {
    name: 'LangChain.js documents as JSON in the system prompt',
    texts: [
      [
        'system',
        `Answer from the context.\nContext:\n${json([
          { pageContent: HARBOUR, metadata: { source: 'a.md' } },
          { pageContent: ORCHARD, metadata: { source: 'b.md' } },
        ])}`,
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, ORCHARD] }],
  },
  {
    name: 'a fenced block under a lead-in',
    texts: [
      [
        'user',
        `Search results:\n\`\`\`json\n${json([{ text: LANTERN }, { text: CLOCK }], 2)}\n\`\`\`\nHow long does a lantern burn?`,
      ],
    ],
    blocks: [{ format: 'json', documents: [LANTERN, CLOCK] }],
  },
  {
    name: 'an array behind the words that announce it',
    texts: [['user', `Answer from these documents and cite their ids: ${json(NAMED)}\n\nQuestion: when?`]],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['port', 'lamp'] }],
  },
  {
    name: 'an indented array behind such words',
    texts: [['user', `Context: ${json(NAMED, 2)}\n\nWhen?`]],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['port', 'lamp'] }],
  },
  {
    name: 'an object with a list in a tag',
    texts: [['user', `<context>${json({ results: NAMED })}</context>\nWhen?`]],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['port', 'lamp'] }],
  },
  {
    name: 'an array as Python writes JSON',
    texts: [['user', `Use the sources [below] = ${json(NAMED, 1).replace(/\n\s*/g, ' ')} to answer.`]],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['port', 'lamp'] }],
  },
  {
    name: 'an array of plain passages',
    texts: [['tool', json({ passages: [HARBOUR, LANTERN, GLACIER] })]],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN, GLACIER] }],
  },
  {
    name: 'the same path twice with different snippets: two documents',
    texts: [
      [
        'tool',
        json({
          results: [
            { path: 'src/a.ts', snippet: HARBOUR },
            { path: 'src/a.ts', snippet: LANTERN },
          ],
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['src/a.ts', 'src/a.ts'] }],
  },
  {
    name: 'escaped signs and other alphabets',
    texts: [
      [
        'tool',
        '{"documents":[{"id":"q","text":"Der Turm hei\\u00dft \\"Alter Wächter\\" und steht am Platz, sagen die Leute."},{"id":"r","text":"塔の時計は毎週木曜日に手で巻かれます。巻かないと三十時間で止まってしまい、鐘も鳴りません。村人はそれを知っています。"}]}',
      ],
    ],
    blocks: [{ format: 'json', documents: ['Alter Wächter', '三十時間'], ids: ['q', 'r'] }],
  },
  {
    name: "LangChain's documents as Python prints them",
    texts: [
      [
        'tool',
        `[Document(id='a1', metadata={'source': 'port.pdf', 'page': 3}, page_content='${HARBOUR}'), Document(id='b2', metadata={'source': "it's.pdf"}, page_content="It's dark (very dark): ${LANTERN}")]`,
      ],
    ],
    blocks: [{ format: 'python', documents: [HARBOUR, LANTERN], ids: ['a1', 'b2'] }],
  },
  {
    name: 'Python documents inside a prompt',
    texts: [
      [
        'user',
        `Context: [Document(page_content='${ORCHARD}\\n\\nMore.', metadata={'source': 'x'}),\n Document(page_content='${BRIDGE}', metadata={'source': 'y'})]\n\nQuestion: is the bridge open?`,
      ],
    ],
    blocks: [{ format: 'python', documents: [ORCHARD, BRIDGE], ids: ['x', 'y'] }],
  },
  {
    name: "LangChain's tutorial: Source and Content",
    texts: [
      [
        'tool',
        `Source: {'source': 'https://port.example'}\nContent: ${HARBOUR}\n\nSource: {'source': 'https://ferry.example'}\nContent: ${FERRY}`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, FERRY] }],
  },
  {
    name: 'search tool: Title, URL, Content',
    texts: [
      ['user', 'Look it up.'],
      [
        'tool',
        `Title: Port\nURL: https://port.example\nContent: ${HARBOUR}\n\nTitle: Lamps\nURL: https://lamp.example\nContent: ${LANTERN}\n\nTitle: Clock\nURL: https://clock.example\nContent: ${CLOCK}`,
      ],
    ],
    blocks: [{ format: 'fields', text: 1, documents: [HARBOUR, LANTERN, CLOCK], ids: ['Port', 'Lamps', 'Clock'] }],
  },
  {
    name: "LlamaIndex's default template with file paths",
    texts: [
      [
        'user',
        `Context information is below.\n---------------------\nfile_path: docs/port.md\n\n${HARBOUR}\n\nfile_path: docs/ferry.md\n\n${FERRY}\n---------------------\nGiven the context information and not prior knowledge, answer the query.\nQuery: When does the ferry leave?\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, FERRY], ids: ['docs/port.md', 'docs/ferry.md'] }],
  },
  {
    name: "LlamaIndex's chat template, several fields a node",
    texts: [
      ['system', `You are an expert Q&A system.`],
      [
        'user',
        `Context information is below.\n---------------------\npage_label: 3\nfile_path: a.pdf\n\n${GLACIER}\n\npage_label: 9\nfile_path: a.pdf\n\n${ORCHARD}\n\npage_label: 1\nfile_path: b.pdf\n\n${BRIDGE}\n---------------------\nGiven the context information, answer the query.\nQuery: Is the bridge open?\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'fields', text: 1, documents: [GLACIER, ORCHARD, BRIDGE] }],
  },
  {
    name: 'Markdown sections that say where they come from',
    texts: [
      [
        'user',
        `### Source: docs/port.md\n${HARBOUR}\n\n### Source: docs/lamps.md\n${LANTERN}\n\n### Question\nHow long does it burn?`,
      ],
    ],
    blocks: [{ format: 'markdown', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'sections under file names',
    texts: [['tool', `## guide/ferry.md\n${FERRY}\n\n## guide/clock.md\n${CLOCK}\n\n## guide/bridge.md\n${BRIDGE}\n`]],
    blocks: [
      {
        format: 'markdown',
        documents: [FERRY, CLOCK, BRIDGE],
        ids: ['guide/ferry.md', 'guide/clock.md', 'guide/bridge.md'],
      },
    ],
  },
];
