import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

export const TAG_PROMPTS: readonly PromptCase[] = [
  {
    name: 'Anthropic long-context style: documents with index, source and content',
    texts: [
      [
        'user',
        `<documents>\n<document index="1">\n<source>port.txt</source>\n<document_content>\n${HARBOUR}\n</document_content>\n</document>\n<document index="2">\n<source>oil.txt</source>\n<document_content>\n${LANTERN}\n</document_content>\n</document>\n</documents>\n\nWhen was the harbour dredged?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'documents with ids and titles in the system prompt',
    texts: [
      [
        'system',
        `You answer from the documents and say so when they do not tell.\n<documents>\n  <document id="port-7" title="The harbour">${HARBOUR}</document>\n  <document id="oil-2" title="Lamps">${LANTERN}</document>\n  <document id="pear-1" title="Pears">${ORCHARD}</document>\n</documents>`,
      ],
      ['user', 'How long does a lantern burn?'],
    ],
    blocks: [
      { format: 'tags', documents: [HARBOUR, LANTERN, ORCHARD], counted: false, ids: ['port-7', 'oil-2', 'pear-1'] },
    ],
  },
  {
    name: 'Open WebUI style: sources in a context, citations asked for',
    texts: [
      [
        'user',
        `### Task:\nRespond to the query using the context below, with inline citations in the format [id] where a <source> has an id.\n\n<context>\n<source id="1" name="port.pdf">${HARBOUR}</source>\n<source id="2" name="oil.pdf">${LANTERN}</source>\n</context>\n\n<user_query>\nWhat do the lanterns burn?\n</user_query>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'Open WebUI style of old: number and text in elements',
    texts: [
      [
        'system',
        `<context>\n<source><source_id>1</source_id><source_context>${GLACIER}</source_context></source>\n<source><source_id>2</source_id><source_context>${CLOCK}</source_context></source>\n</context>\nCite as [source_id].`,
      ],
      ['user', 'And the clock?'],
    ],
    blocks: [{ format: 'tags', documents: [GLACIER, CLOCK], counted: true }],
  },
  {
    name: 'bare passages in the user message',
    texts: [['user', `<passage>${BRIDGE}</passage>\n<passage>${CLOCK}</passage>\nIs the bridge open in May?`]],
    blocks: [{ format: 'tags', documents: [BRIDGE, CLOCK] }],
  },
  {
    name: 'passages of several paragraphs, white space inside',
    texts: [
      [
        'user',
        `Context follows.\n<doc id='a'>\n\n${FERRY}\n\n</doc>\n\n\n<doc id='b'>\n${ORCHARD}\n</doc>\n\nMay I bring a dog?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [FERRY, ORCHARD], ids: ['a', 'b'] }],
  },
  {
    name: 'tool result with search results in a wrapper',
    texts: [
      ['user', 'Search for the glacier.'],
      [
        'tool',
        `<search_results query="glacier">\n<result url="https://ice.example/aster">${GLACIER}</result>\n<result url="https://ice.example/clock">${CLOCK}</result>\n</search_results>`,
      ],
    ],
    blocks: [
      {
        format: 'tags',
        text: 1,
        documents: [GLACIER, CLOCK],
        ids: ['https://ice.example/aster', 'https://ice.example/clock'],
      },
    ],
  },
  {
    name: 'files in a wrapper from a reading tool',
    texts: [
      [
        'tool',
        `<files>\n<file path="notes/port.md">\n${HARBOUR}\n</file>\n<file path="notes/oil.md">\n${LANTERN}\n</file>\n</files>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], ids: ['notes/port.md', 'notes/oil.md'] }],
  },
  {
    name: 'chunks with scores that change from request to request',
    texts: [
      [
        'system',
        `Knowledge:\n<chunks>\n<chunk score="0.83" source="a.md">${ORCHARD}</chunk>\n<chunk score="0.79" source="b.md">${BRIDGE}</chunk>\n</chunks>`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [ORCHARD, BRIDGE], ids: ['a.md', 'b.md'] }],
  },
  {
    name: 'a passage cut in the middle of a code fence',
    texts: [
      [
        'user',
        `<documents>\n<document>\nTo wind the clock from a script:\n\`\`\`sh\nwind --tower\n</document>\n<document>\n${CLOCK}\n</document>\n</documents>\nHow is it wound?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: ['wind --tower', CLOCK] }],
  },
  {
    name: 'two blocks in one message',
    texts: [
      [
        'user',
        `<docs><doc>${HARBOUR}</doc><doc>${LANTERN}</doc></docs>\nNotes of the user:\n<snippets><snippet>${CLOCK}</snippet><snippet>${GLACIER}</snippet></snippets>\nWhat is known?`,
      ],
    ],
    blocks: [
      { format: 'tags', documents: [HARBOUR, LANTERN] },
      { format: 'tags', documents: [CLOCK, GLACIER] },
    ],
  },
  {
    name: 'marked documents, whatever the question says',
    texts: [
      [
        'user',
        `<warmpath-documents>\n<document>A1</document>\n<document>B2</document>\n</warmpath-documents>\nWhat does the first document say?`,
      ],
    ],
    blocks: [{ format: 'tags', marked: true, documents: ['A1', 'B2'] }],
  },
  {
    name: 'marked sections between rules',
    texts: [
      [
        'system',
        `Rules of the house.\n---\nBe brief.\n<warmpath-documents format="separator">\n${FERRY}\n---\n${CLOCK}\n---\n${BRIDGE}\n</warmpath-documents>\n---\nEnd.`,
      ],
    ],
    blocks: [{ format: 'separator', marked: true, documents: [FERRY, CLOCK, BRIDGE] }],
  },
  {
    name: 'marked sections under headings',
    texts: [
      [
        'user',
        `<warmpath-documents format="markdown">\n# Harbour\n${HARBOUR}\n## Detail\nMore.\n# Lamps\n${LANTERN}\n</warmpath-documents>\nWhen?`,
      ],
    ],
    blocks: [{ format: 'markdown', marked: true, documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'marked numbers within a line',
    texts: [['user', 'Intro <warmpath-documents format="numbered">[1] a [2] b</warmpath-documents> and on.']],
    blocks: [{ format: 'numbered', marked: true, documents: ['a', 'b'], counted: true }],
  },
  {
    name: 'marked, with labels that count the documents',
    texts: [
      ['system', 'Cite your sources.'],
      ['user', `<warmpath-documents format="numbered">\n[1] ${HARBOUR}\n[2] ${LANTERN}\n</warmpath-documents>\nWhen?`],
    ],
    blocks: [{ format: 'numbered', text: 1, marked: true, documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'marked, with an attribute that says nothing',
    texts: [
      [
        'user',
        `<warmpath-documents labels="kept">\n[1] ${HARBOUR}\n[2] ${LANTERN}\n</warmpath-documents>\nWhen was it dredged?`,
      ],
    ],
    blocks: [{ format: 'numbered', marked: true, documents: [HARBOUR, LANTERN], counted: true }],
  },
];
