import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

/** Prompts of chat applications, agent frameworks and hand-written chains. */
export const APPLICATION_PROMPTS: readonly PromptCase[] = [
  {
    name: 'LibreChat style: files with anchors, parted by rules',
    texts: [
      [
        'tool',
        `File: port.pdf\nAnchor: \ue202turn0file0 (port.pdf)\nRelevance: 0.8412\nContent: ${FERRY}\n\n---\n\nFile: lamp.pdf\nAnchor: \ue202turn0file1 (lamp.pdf)\nRelevance: 0.7712\nContent: ${LANTERN}\n\n---\n\nFile: ice.pdf\nAnchor: \ue202turn0file2 (ice.pdf)\nRelevance: 0.7011\nContent: ${GLACIER}\n`,
      ],
    ],
    blocks: [
      {
        format: 'fields',
        documents: [FERRY, LANTERN, GLACIER],
        ids: ['port.pdf', 'lamp.pdf', 'ice.pdf'],
        between: '\n\n---\n\n',
      },
    ],
  },
  {
    name: 'RAGFlow style: a tree of fields under a number',
    texts: [
      [
        'system',
        `You are an assistant. Answer from the knowledge base.\nHere is the knowledge base:\n\nID: 0\n├── Title: port.pdf\n├── URL: https://port.example\n└── Content:\n${HARBOUR}\n------\n\nID: 1\n├── Title: lamp.pdf\n└── Content:\n${LANTERN}\n------\n\nID: 2\n├── Title: ice.pdf\n└── Content:\n${GLACIER}\n------\nThe above is the knowledge base.`,
      ],
      ['user', 'What do lanterns burn?'],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN, GLACIER], between: '\n------\n\n' }],
  },
  {
    name: 'FastGPT style: quotes as JSON in a tag',
    texts: [
      [
        'user',
        `Use what stands in <Reference></Reference> as your knowledge:\n\n<Reference>\nContext:\n${JSON.stringify(
          [
            { id: '65f0', sourceName: 'port.pdf', content: HARBOUR },
            { id: '65f1', sourceName: 'lamp.pdf', content: LANTERN },
          ],
          undefined,
          2,
        )}\n</Reference>\n\nQuestion: "What do lanterns burn?"`,
      ],
    ],
    blocks: [{ format: 'json', documents: [HARBOUR, LANTERN], ids: ['65f0', '65f1'] }],
  },
  {
    name: 'Open WebUI style with Windows line ends',
    texts: [
      [
        'user',
        `### Task:\r\nAnswer the query from the context, with inline citations in the form [id].\r\n\r\n<context>\r\n<source id="1" name="port.pdf">${HARBOUR}</source>\r\n<source id="2" name="port.pdf">${LANTERN}\r\n\r\n${CLOCK}</source>\r\n</context>\r\n\r\nWhat do lanterns burn?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: "a citation engine's template with an example in front",
    texts: [
      [
        'user',
        `Answer only from the sources below and cite them by number.\nFor example:\nSource 1:\nBells are cast from bronze.\nSource 2:\nBronze is tin and copper.\nQuery: What are bells made of?\nAnswer: Of bronze [1], that is tin and copper [2].\nNow it is your turn. These are the sources:\n------\nSource 1:\n${HARBOUR}\n\nSource 2:\n${FERRY}\n\nSource 3:\n${LANTERN}\n------\nQuery: When does the ferry leave?\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'headed', documents: [HARBOUR, FERRY, LANTERN], counted: true }],
  },
  {
    name: 'a refine step: the answer so far and new nodes with fields',
    texts: [
      [
        'user',
        `The original query is as follows: When?\nWe have provided an existing answer: In 1931.\nContext information is below.\n---------------------\nfile_path: port.md\n\n${HARBOUR}\n\nfile_path: ferry.md\n\n${FERRY}\n\nfile_path: lamp.md\n\n${LANTERN}\n---------------------\nRefine the existing answer.\nRefined Answer: `,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, FERRY, LANTERN] }],
  },
  {
    name: "nodes in LlamaIndex's frame with Windows line ends",
    texts: [
      [
        'user',
        `Context information is below.\r\n---------------------\r\nfile_path: port.md\r\n\r\n${HARBOUR}\r\n\r\nfile_path: lamp.md\r\n\r\n${LANTERN}\r\n---------------------\r\nGiven the context information, answer.\r\nQuery: When?\r\nAnswer: `,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN], ids: ['port.md', 'lamp.md'] }],
  },
  {
    name: 'Cohere style: documents with lower-case fields in a tag',
    texts: [
      [
        'tool',
        `<results>\nDocument: 0\ntitle: Port\nurl: https://port.example\ntext: ${HARBOUR}\n\nDocument: 1\ntitle: Lamps\nurl: https://lamp.example\ntext: ${LANTERN}\n</results>`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'hand-written chain: the source in brackets over each passage',
    texts: [
      [
        'system',
        `Answer from the context only.\n\nContext:\n[Source: port.md]\n${FERRY}\n\n[Source: lamp.md]\n${LANTERN}\n\n[Source: ice.md]\n${GLACIER}`,
      ],
      ['user', 'How long does a lantern burn?'],
    ],
    blocks: [{ format: 'fields', documents: [FERRY, LANTERN, GLACIER], ids: ['port.md', 'lamp.md', 'ice.md'] }],
  },
  {
    name: 'hand-written chain: sources in brackets and rules between, question behind',
    texts: [
      [
        'user',
        `Context:\n\n[Source: port.md, page 3]\n${HARBOUR}\n\n---\n\n[Source: lamp.md, page 1]\n${LANTERN}\n\n---\n\n[Source: ice.md, page 9]\n${GLACIER}\n\nQuestion: how thick is the ice?`,
      ],
    ],
    blocks: [{ format: 'fields', documents: [HARBOUR, LANTERN, GLACIER], between: '\n\n---\n\n' }],
  },
  {
    name: "Azure's sample: file and page before each passage",
    texts: [
      ['system', 'Answer from the sources only. Each source has a name followed by a colon.'],
      [
        'user',
        `How heavy is it?\n\nSources:\n\nport_2024.pdf#page=2: ${HARBOUR}\n\nlamp-guide.pdf#page=11: ${LANTERN}\n\nice.docx: ${GLACIER}`,
      ],
    ],
    blocks: [
      {
        format: 'fields',
        text: 1,
        documents: [HARBOUR, LANTERN, GLACIER],
        ids: ['port_2024.pdf#page=2', 'lamp-guide.pdf#page=11', 'ice.docx'],
      },
    ],
  },
  {
    name: 'a repository packed for a model: files in a wrapper that says so',
    texts: [
      [
        'user',
        `<file_summary>\nAll files of the repository.\n</file_summary>\n\n<files>\nThis section contains the contents of the files.\n\n<file path="src/port.ts">\n1: export const depth = 9;\n2: // ${HARBOUR}\n</file>\n\n<file path="src/lamp.ts">\n1: export const oil = 'colza';\n2: // ${LANTERN}\n</file>\n\n</files>\nWhere is the depth defined?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], ids: ['src/port.ts', 'src/lamp.ts'] }],
  },
  {
    name: 'a document that holds documents',
    texts: [
      [
        'user',
        `<documents>\n<document index="1">\n<source>manual.md</source>\n<document_contents>\nWrite so:\n<document index="1">a</document>\n<document index="2">b</document>\n${HARBOUR}\n</document_contents>\n</document>\n<document index="2">\n<source>lamp.md</source>\n<document_contents>\n${LANTERN}\n</document_contents>\n</document>\n</documents>\n\nHow are documents written?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'one huge passage beside a small one',
    texts: [
      [
        'user',
        `<docs><doc id="long">${`${HARBOUR} `.repeat(2_000)}</doc><doc id="short">${LANTERN}</doc></docs>\nWhat burns?`,
      ],
    ],
    blocks: [{ format: 'tags', documents: [HARBOUR, LANTERN], ids: ['long', 'short'] }],
  },
  {
    name: 'Chinese: numbered material and a question',
    texts: [
      [
        'user',
        '请根据以下资料回答问题。\n\n参考资料：\n[1] 韦尔莫拉港于一九三一年疏浚，此后运粮船即使在退潮时也能停靠在内港码头，不必再等候涨潮。\n[2] 台伯作坊的灯笼燃烧菜籽油，灯芯调到一半高度时，装满的油壶可以连续使用九个小时左右的时间。\n[3] 北果园种有四十行晚熟的梨树，初霜之后采摘，放在稻草上保存，到了冬天仍然可以食用和出售。\n\n问题：灯笼燃烧什么？',
      ],
    ],
    blocks: [{ format: 'numbered', documents: ['韦尔莫拉港', '台伯作坊', '北果园'], counted: true }],
  },
  {
    name: 'Chinese: material under counted headings, citations asked for',
    texts: [
      ['system', '回答时请标注来源编号。'],
      [
        'user',
        '【资料1】\n韦尔莫拉港于一九三一年疏浚，此后运粮船即使在退潮时也能停靠在内港码头，不必再等候涨潮。\n\n【资料2】\n台伯作坊的灯笼燃烧菜籽油，灯芯调到一半高度时，装满的油壶可以连续使用九个小时左右的时间。\n\n问题：灯笼燃烧什么？',
      ],
    ],
    blocks: [{ format: 'headed', text: 1, documents: ['韦尔莫拉港', '台伯作坊'], counted: true }],
  },
  {
    name: 'Arabic: numbered sources and a question',
    texts: [
      [
        'user',
        'أجب اعتمادًا على المصادر التالية فقط.\n\nالمصادر:\n[1] جرى تعميق ميناء فيلمورا عام ١٩٣١ لكي ترسو سفن الحبوب عند الرصيف الداخلي حتى في وقت الجزر.\n[2] تحرق مصابيح ورشة تيبر زيت السلجم، ويكفي الخزان الممتلئ تسع ساعات إذا كان الفتيل في منتصفه.\n\nالسؤال: ماذا تحرق المصابيح؟',
      ],
    ],
    blocks: [{ format: 'numbered', documents: ['ميناء فيلمورا', 'ورشة تيبر'], counted: true }],
  },
  {
    name: 'Russian headings',
    texts: [['user', `Документ 1: ${HARBOUR}\nДокумент 2: ${LANTERN}\n\nВопрос: что горит в фонаре?`]],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'Korean headings',
    texts: [['user', `문서 1: ${HARBOUR}\n문서 2: ${LANTERN}\n\n질문: 등불은 무엇을 태우나요?`]],
    blocks: [{ format: 'headed', documents: [HARBOUR, LANTERN] }],
  },
  {
    name: 'a question about number 2',
    texts: [['user', `Context:\n[1] ${HARBOUR}\n[2] ${LANTERN}\n\nIs number 2 right about the oil?`]],
    blocks: [{ format: 'numbered', documents: [HARBOUR, LANTERN], counted: true }],
  },
  {
    name: 'passages in bold headings with a file behind the number: the last one, which nothing closes, stays',
    texts: [
      [
        'system',
        `## Retrieved knowledge\n\n**Chunk 1** (port.md, score 0.91)\n${BRIDGE}\n\n**Chunk 2** (clock.md, score 0.88)\n${CLOCK}\n\n**Chunk 3** (pears.md, score 0.52)\n${ORCHARD}\n\n## Rules\nBe short.`,
      ],
      ['user', 'Who winds the clock?'],
    ],
    blocks: [{ format: 'headed', documents: [BRIDGE, CLOCK] }],
  },
];
