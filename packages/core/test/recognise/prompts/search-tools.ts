import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

/** Results of search tools, as JSON and as text. */
export const SEARCH_PROMPTS: readonly PromptCase[] = [
  {
    name: 'Exa style: results with highlights beside the text',
    texts: [
      [
        'tool',
        JSON.stringify({
          requestId: 'b5947044c4b7',
          resolvedSearchType: 'neural',
          results: [
            {
              id: 'https://port.example',
              title: 'Port',
              url: 'https://port.example',
              publishedDate: '2026-01-05',
              author: 'A. Verne',
              text: HARBOUR,
              highlights: ['1931'],
              highlightScores: [0.4],
            },
            {
              id: 'https://lamp.example',
              title: 'Lamps',
              url: 'https://lamp.example',
              publishedDate: '2025-11-30',
              author: 'B. Sol',
              text: LANTERN,
              highlights: ['colza'],
              highlightScores: [0.3],
            },
          ],
          costDollars: { total: 0.005 },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['https://port.example', 'https://lamp.example'] }],
  },
  {
    name: 'Brave style: results of the web inside an object',
    texts: [
      [
        'tool',
        JSON.stringify({
          query: { original: 'ice', more_results_available: true },
          web: {
            type: 'search',
            results: [
              {
                title: 'Ice',
                url: 'https://ice.example',
                is_source_local: false,
                description: GLACIER,
                age: 'January 3',
              },
              {
                title: 'Clock',
                url: 'https://clock.example',
                is_source_local: false,
                description: CLOCK,
                age: 'May 8',
              },
            ],
          },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [GLACIER, CLOCK], ids: ['https://ice.example', 'https://clock.example'] }],
  },
  {
    name: 'Perplexity style: results with dates',
    texts: [
      [
        'tool',
        JSON.stringify({
          results: [
            {
              title: 'Port',
              url: 'https://port.example',
              snippet: HARBOUR,
              date: '2026-01-05',
              last_updated: '2026-02-01',
            },
            {
              title: 'Pears',
              url: 'https://pears.example',
              snippet: ORCHARD,
              date: '2025-09-12',
              last_updated: '2026-02-01',
            },
          ],
          id: 'e38104d5',
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, ORCHARD] }],
  },
  {
    name: 'SerpAPI style: organic results beside questions of others',
    texts: [
      [
        'tool',
        JSON.stringify({
          search_metadata: { id: '6501' },
          organic_results: [
            { position: 1, title: 'Port', link: 'https://port.example', snippet: HARBOUR },
            { position: 2, title: 'Lamps', link: 'https://lamp.example', snippet: LANTERN },
            { position: 3, title: 'Ice', link: 'https://ice.example', snippet: GLACIER },
          ],
          related_questions: [
            { question: 'What is colza?', snippet: CLOCK },
            { question: 'Why oil?', snippet: BRIDGE },
          ],
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN, GLACIER], counted: true }],
  },
  {
    name: 'Firecrawl style: pages of the web as Markdown',
    texts: [
      [
        'tool',
        JSON.stringify({
          success: true,
          data: {
            web: [
              { url: 'https://port.example', title: 'Port', description: 'A port.', markdown: `# Port\n\n${FERRY}` },
              { url: 'https://lamp.example', title: 'Lamps', description: 'Lamps.', markdown: `# Lamps\n\n${LANTERN}` },
            ],
          },
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [FERRY, LANTERN] }],
  },
  {
    name: "the AI SDK's guide: passages as names with a similarity",
    texts: [
      [
        'tool',
        JSON.stringify([
          { name: HARBOUR, similarity: 0.83 },
          { name: LANTERN, similarity: 0.61 },
        ]),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'Pinecone style: matches with metadata',
    texts: [
      [
        'tool',
        JSON.stringify({
          namespace: 'a',
          matches: [
            { id: 'v1#3', score: 0.9, values: [], metadata: { text: HARBOUR, page: 3 } },
            { id: 'v1#7', score: 0.8, values: [], metadata: { text: LANTERN, page: 1 } },
          ],
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['v1#3', 'v1#7'] }],
  },
  {
    name: 'papers: the date stands before the title',
    texts: [
      [
        'tool',
        `Published: 2026-01-05\nTitle: On ice\nAuthors: A. Verne\nSummary: ${GLACIER}\n\nPublished: 2024-03-09\nTitle: On clocks\nAuthors: B. Sol\nSummary: ${CLOCK}\n\nPublished: 2025-07-01\nTitle: On pears\nAuthors: C. Tarn\nSummary: ${ORCHARD}`,
      ],
    ],
    blocks: [
      {
        format: 'fields',
        documents: [GLACIER, CLOCK, ORCHARD],
        starts: ['Published: 2026-01-05', 'Published: 2024-03-09', 'Published: 2025-07-01'],
      },
    ],
  },
  {
    name: 'results with their number on a line of its own',
    texts: [
      [
        'tool',
        `Result 1:\nTitle: Port\nURL: https://port.example\nContent: ${HARBOUR}\n\nResult 2:\nTitle: Lamps\nURL: https://lamp.example\nContent: ${LANTERN}\n\nResult 3:\nTitle: Ice\nURL: https://ice.example\nContent: ${GLACIER}`,
      ],
    ],
    blocks: [
      {
        format: 'fields',
        documents: [HARBOUR, LANTERN, GLACIER],
        starts: ['Result 1:', 'Result 2:', 'Result 3:'],
      },
    ],
  },
  {
    name: 'pages of an encyclopedia: page and summary',
    texts: [
      [
        'tool',
        `Page: Velmora\nSummary: ${HARBOUR}\n\nPage: Tiber workshop\nSummary: ${FERRY}\n\nPage: Aster\nSummary: ${GLACIER}`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, FERRY, GLACIER], ids: ['Velmora', 'Tiber workshop', 'Aster'] }],
  },
  {
    name: 'Exa as text: highlights and rules',
    texts: [
      [
        'tool',
        `Title: Port\nURL: https://port.example\nPublished: 2026-01-05\nAuthor: N/A\nHighlights:\n${HARBOUR}\n\n---\n\nTitle: Lamps\nURL: https://lamp.example\nPublished: N/A\nAuthor: B. Sol\nHighlights:\n${LANTERN}\n`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN], between: '\n\n---\n\n' }],
  },
  {
    name: 'a reader that repeats its numbers, with Windows line ends',
    texts: [
      [
        'tool',
        `[1] Title: Port\r\n[1] URL Source: https://port.example\r\n[1] Description: ${HARBOUR}\r\n\r\n[2] Title: Lamps\r\n[2] URL Source: https://lamp.example\r\n[2] Description: ${LANTERN}\r\n`,
      ],
    ],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'hundreds of small results',
    texts: [
      [
        'tool',
        JSON.stringify({
          results: Array.from({ length: 400 }, (_, i) => ({
            url: `u${i}`,
            snippet: `No. ${i}: ${HARBOUR.slice(0, 60)}`,
          })),
        }),
      ],
    ],
    blocks: [{ format: 'json', documents: Array.from({ length: 400 }, (_, i) => `No. ${i}: `) }],
  },
  {
    name: 'passages of a page that holds JSON and numbers itself',
    texts: [
      [
        'tool',
        `<results>\n<result url="a">\n[1] first\n[2] second\n{"results":[{"text":"${HARBOUR}"},{"text":"${LANTERN}"}]}\n</result>\n<result url="b">\n${FERRY}\n</result>\n</results>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, FERRY], ids: ['a', 'b'] }],
  },
];
