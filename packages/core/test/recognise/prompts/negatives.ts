import { BRIDGE, CLOCK, FERRY, GLACIER, HARBOUR, LANTERN, ORCHARD, type PromptCase } from './prompt.js';

const none = (name: string, ...texts: PromptCase['texts']): PromptCase => ({ name, texts, blocks: [] });

/** What looks like documents, and is none, or none that may be parted. */
export const NEGATIVE_PROMPTS: readonly PromptCase[] = [
  none('a question', ['system', 'You are helpful.'], ['user', 'When was the harbour of Velmora dredged?']),
  none('array indices', [
    'user',
    'Why does this fail?\nlet x = [];\nx[0] = compute(x[1], x[2]);\nx[1] = compute(x[2], x[3]);\nfor (const y of x) console.log(y[0], y[1]);',
  ]),
  none('array indices at line starts', [
    'user',
    'Context of the bug:\n[0] is read before it is written, and that is all there is.\nrows[0] = rows[1];\nrows[1] = rows[2];',
  ]),
  none('citations in prose', [
    'user',
    `${HARBOUR} [1] ${LANTERN} [2]\nCheck the citations [1] and [2] of this paragraph for style.`,
  ]),
  none('a bibliography', [
    'user',
    `The ice is retreating [1], and faster than thought [2].\n\nReferences\n[1] A. Verne and B. Sol, On the thickness of northern ice, Journal of Ice, 1931.\n[2] C. Tarn, Eleven metres: a survey of the Aster glacier, Ice Letters, 1948.`,
  ]),
  none('numbered steps in brackets', [
    'system',
    'Follow these steps:\n[1] Read the question with care and find out what is wanted.\n[2] Think of what you know about the subject.\n[3] Write an answer of at most three sentences.',
  ]),
  none('a list of steps', ['user', `1. ${HARBOUR}\n2. ${LANTERN}\n3. ${ORCHARD}\nPut these events into a story.`]),
  none('Step headings', ['user', `Step 1: ${HARBOUR}\nStep 2: ${LANTERN}\nStep 3: ${ORCHARD}`]),
  none('articles of a law', [
    'user',
    `Article 1. ${HARBOUR}\nArticle 2. ${LANTERN}\nArticle 3. ${ORCHARD}\nIs this valid?`,
  ]),
  none('chapters of a text', ['user', `# Chapter 1\n${HARBOUR}\n\n# Chapter 2\n${LANTERN}\n\nContinue the story.`]),
  none('an ordinary Markdown page', [
    'system',
    `# Role\nYou are a keeper.\n\n## Tone\n${ORCHARD}\n\n## Limits\n${CLOCK}\n\n## Format\nShort.`,
  ]),
  none('rules between sections', ['user', `${HARBOUR}\n\n---\n\n${LANTERN}\n\n---\n\n${ORCHARD}\n\nWhich is best?`]),
  none(
    "LangChain's default template: nothing parts the documents",
    [
      'system',
      `Use the following pieces of context to answer the user's question.\nIf you don't know the answer, just say that you don't know.\n----------------\n${HARBOUR}\n\n${FERRY}\n\n${LANTERN}`,
    ],
    ['user', 'When does the ferry leave?'],
  ),
  none("LlamaIndex's template with nodes that have no fields", [
    'user',
    `Context information is below.\n---------------------\n${HARBOUR}\n\n${FERRY}\n---------------------\nGiven the context information, answer the query.\nQuery: When?\nAnswer: `,
  ]),
  none(
    'Dify style: a context of paragraphs',
    [
      'system',
      `Use the following context as your learned knowledge, inside <context></context> XML tags.\n<context>\n${HARBOUR}\n${LANTERN}\n</context>`,
    ],
    ['user', 'When?'],
  ),
  none('one document', ['user', `<documents><document id="a">${HARBOUR}</document></documents>\nWhen?`]),
  none('one bare element', ['user', `<document>${HARBOUR}</document>\nWhen?`]),
  none('one numbered passage', ['user', `Context:\n[1] ${HARBOUR}\n\nWhen?`]),
  none('a build file', [
    'user',
    'Fix my pom:\n<sources>\n  <source>src/main/java</source>\n  <source>src/gen/java</source>\n</sources>',
  ]),
  none('elements in a fence of code', [
    'user',
    `What is wrong with this feed?\n\`\`\`xml\n<documents>\n<document>${HARBOUR}</document>\n<document>${LANTERN}</document>\n</documents>\n\`\`\``,
  ]),
  none('HTML', [
    'user',
    `Make this page valid:\n<section><p>${HARBOUR}</p></section>\n<section><p>${LANTERN}</p></section>`,
  ]),
  none('components', ['user', `<Document title="a">${HARBOUR}</Document>\n<Document title="b">${LANTERN}</Document>`]),
  none('text between the elements', [
    'user',
    `<document>${HARBOUR}</document> was written before <document>${LANTERN}</document>. Compare them.`,
  ]),
  none('elements that never end', ['user', `<document>${HARBOUR}\n<document>${LANTERN}\n<document>${CLOCK}`]),
  none('examples', ['system', `<examples>\n<example>${HARBOUR}</example>\n<example>${LANTERN}</example>\n</examples>`]),
  none('chat messages as JSON', [
    'tool',
    JSON.stringify([
      { role: 'user', content: HARBOUR },
      { role: 'assistant', content: LANTERN },
    ]),
  ]),
  none('a log with times', [
    'tool',
    JSON.stringify({
      records: [
        { timestamp: '2026-01-01T00:00:00Z', text: HARBOUR },
        { timestamp: '2026-01-01T00:00:01Z', text: LANTERN },
      ],
    }),
  ]),
  none('parallel arrays', [
    'tool',
    JSON.stringify({ ids: ['a', 'b'], documents: [HARBOUR, LANTERN], distances: [0.1, 0.2] }),
  ]),
  none('rows of a table', [
    'tool',
    JSON.stringify({
      results: [
        { name: 'Velka', weight: 42 },
        { name: 'Orsin', weight: 17 },
      ],
    }),
  ]),
  none('a file that the user asks about', [
    'user',
    `Explain this configuration: {"items": [{"text": "${HARBOUR}"}, {"text": "${LANTERN}"}]}`,
  ]),
  none('JSON that is cut off', ['tool', `{"results":[{"content":"${HARBOUR}"},{"content":"${LANTERN}"`]),
  none('a model that wrote documents itself', [
    'assistant',
    `<document>${HARBOUR}</document><document>${LANTERN}</document>`,
  ]),
  none('numbers that do not rise', [
    'user',
    `Sources:\n[1] ${HARBOUR}\n[3] quoted from the second edition\n[2] ${LANTERN}\n\nWhen?`,
  ]),
  none('a closing remark that could belong to the last passage', [
    'system',
    `Sources:\n[1] The port.\n${HARBOUR}\n[2] The lamps.\n${LANTERN}\n\nEverything else in the archive was lost in the flood.`,
  ]),
  none('document numbers in sentences', [
    'user',
    `Document 1 shows that ${HARBOUR}\nDocument 2 shows that ${LANTERN}\nWhich one is right?`,
  ]),
  none('a log of commands', [
    'tool',
    `[1] build started on the shared machine by the night job of the team\n[2] build finished with no error after four hundred and three seconds`,
  ]),
  none('e-mails', ['user', `From: Ada\nSubject: Port\n${HARBOUR}\n\nFrom: Bo\nSubject: Re: Port\n${LANTERN}`]),
  none('Python that builds documents', [
    'user',
    `docs = [Document(page_content=text, metadata=meta) for text in texts]\nprint(docs[0], docs[1])\n# ${BRIDGE} ${GLACIER}`,
  ]),
];
