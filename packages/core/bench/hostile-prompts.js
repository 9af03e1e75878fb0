const PASSAGE = 'The harbour was dredged in 1931 so that ships could moor at the inner quay.';
const RESULT = `{"url":"a","content":"${PASSAGE}"}`;

/** Texts that, repeated, would take a careless recogniser the square of their length. */
export const HOSTILE = [
  ['open elements', '<document>'],
  ['end tags', '</document>'],
  ['tags that never close', '<document '],
  ['elements', '<doc>ab</doc>'],
  ['elements of many names', '<doc>a b</doc><source>c d</source>'],
  ['wrappers in wrappers', '<context>'],
  ['numbers', '\n[1] a [2] b'],
  ['headings', '\nDocument 1: a'],
  ['closing lines', '\n[END CONTEXT 1]'],
  ['brackets', '['],
  ['braces at line starts', '\n{'],
  ['objects', '{"a":'],
  ['open strings', '\n["'],
  ['backslashes', '\n["\\'],
  ['objects with texts', '\n[{"text":"a"},'],
  ['calls', 'Document(page_content='],
  ['open quotes', "Document(page_content='"],
  ['records', '\nTitle: a\nURL: b'],
  ['records with texts', '\nTitle: a\nContent: b'],
  ['frames', 'context information is below\n-----\n'],
  ['nodes', 'context information\n-----\na: b\n\na: c\n\n'],
  ['sections', '\n# a.md\ntext'],
  ['rules', '\n---\n'],
  ['fences', '\n```\n'],
  ['white space', ' '],
  ['line feeds', '\n'],
  ['marks', '<warmpath-documents>'],
  ['marked rules', '<warmpath-documents format="separator">\n---\na</warmpath-documents>'],
  ['marked words', '<warmpath-documents>a</warmpath-documents>'],
  ['marked openings', '<warmpath-documents>\n["a\n[1] Document(\ncontext information\n-----\n</warmpath-documents>'],
  ['frames of many nodes', 'context information\n-----\na: b\n-----\n'],
  ['questions', '\nQuestion: what? Name the source 1 of [1, 2'],
  ['words', 'documents in the order of the first '],
  [
    'results that refer to each other',
    `\n{"results":[${RESULT},${RESULT}],"x":{"mixed":[{"index":0}]}}`,
    { role: 'tool' },
  ],
  [
    'a list of results, referred to',
    `${RESULT},`,
    { role: 'tool', before: '{"results":[', after: `${RESULT}],"mixed":[{"index":"a"}]}` },
  ],
  [
    'references without end',
    '{"index":"a"},',
    { role: 'tool', before: `{"results":[${RESULT},${RESULT}],"mixed":[`, after: '{}]}' },
  ],
  [
    'elements of an API',
    `{"type":"document","source":{"type":"text","data":"${PASSAGE}"}},`,
    { kind: 'elements', after: '{}' },
  ],
  ['open elements of an API', '{"type":"document","source":', { kind: 'elements' }],
  ['trees of fields', `\nID: 0\n├── Title: port.md\n└── Content: \n${PASSAGE}\n\n------\n`, { role: 'tool' }],
  ['trees without words', '\nID: 0\n├── Title: a\n└── ', { role: 'tool' }],
  ['rules between records', `\nFile: a.md\nAnchor: x\nRelevance: 0.8\nContent: ${PASSAGE}\n\n---\n`, { role: 'tool' }],
  ['rules between titles', `\nTitle: a\nURL: b\nHighlights:\n${PASSAGE}\n---\n`, { role: 'tool' }],
  [
    'quotes in a tag',
    `{"id":"a","sourceName":"b","content":"${PASSAGE}"},`,
    { before: '<Reference>\nContext:\n[', after: `${RESULT}]\n</Reference>\n\nQuestion: why?` },
  ],
  ['tags of quotes', `<Quote>{"q":"${PASSAGE}"}`],
  ['sources in brackets', `\n\n[Source: port.md, page 3]\n${PASSAGE}`],
  ['sources in brackets, nothing else', '\n[Source: a]'],
  ['sources in open brackets', '\n\n[Source: port'],
  ['files with text', `\nport.pdf#page=2: ${PASSAGE}`, { before: 'Sources:\n' }],
  ['files without a colon', '\nport.pdf#page=2 ', { before: 'Sources:\n' }],
  ['names of files', '\na.b', { before: 'Sources:\n', after: ':' }],
];

/** A prompt of about that many characters, as what `recognise` takes. */
export function hostilePrompt([, unit, how = {}], characters) {
  const { role = 'user', kind, before = '', after = '' } = how;
  const text = before + unit.repeat(Math.ceil(characters / unit.length)) + after;
  return [[{ role, text, ...(kind && { kind }) }], { mode: 'form' }];
}
