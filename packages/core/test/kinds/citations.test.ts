import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { type PromptText, recognise } from '../../src/index.js';
import { LabelMap } from '../../src/internal.js';

const SEED = 20_261_127;
const TOPICS = ['harbour', 'lantern', 'orchard', 'glacier', 'bridge'];
const PASSAGES = TOPICS.map((topic) => `The ${topic} of Velmora is kept by the people who meet there every spring.`);

function labelled(ranks: readonly number[]) {
  const listed = ranks.map((rank, place) => `[${place + 1}] ${PASSAGES[rank]}`).join('\n\n');
  const texts: PromptText[] = [{ role: 'user', text: `Sources:\n${listed}\n\nQuestion: Who?` }];
  const blocks = recognise(texts, { mode: 'form' });
  const map = LabelMap.of(texts, blocks);
  return { map, labels: ranks.map((_, place) => map.labelOf(blocks[0]!, place)!) };
}

/** ①, ② and ③ stand for the labels of the first three documents. */
function withLabels(text: string, labels: readonly string[]): string {
  return text.replaceAll(/[①②③]/g, (sign) => labels['①②③'.indexOf(sign)]!);
}
const GIVEN = ['1', '2', '3'];

/** How a model may cite, by what it was asked for. */
const CITATIONS: Readonly<Record<string, readonly string[]>> = {
  brackets: [
    'built [①].',
    '【①】',
    '[①, ③]',
    '[①][②]',
    '[①], [②]',
    '[①; ②]',
    '[^①]',
    '[①†source]',
    '**[①]**',
    '[①]、',
    '[①]-[③]',
  ],
  English: [
    'Source ①',
    'sources ①, ② and ③',
    'Sources:\n- ①',
    'Source(s): ①',
    'Ref. ①',
    'document #①',
    'source_①',
    'it is (①).',
  ],
  German: ['Quelle ①', 'laut Quelle Nr. ①', '(Quellen ① und ②)', '[Quelle: ①]', 'Dokument ①'],
  French: ['selon la source ①', 'source n° ①', 'sources ① et ②', 'extrait ①'],
  Spanish: ['según la fuente ①', 'fuente n.º ①', 'fuentes ① y ②', 'documento ①'],
  Portuguese: ['a fonte ①', 'fontes ① e ②', 'referência ①'],
  Italian: ['la fonte ①', 'fonti ① e ②', 'documento ①'],
  Dutch: ['bron ①', 'bronnen ① en ②'],
  Swedish: ['källa ①', 'källorna: [①]', 'källor ① och ②'],
  Polish: ['źródło ①', 'źródła ① i ②', 'dokument ①'],
  Czech: ['zdroj ①', 'zdroje ① a ②'],
  Turkish: ['kaynak ①', 'kaynağı ①', 'kaynak ① ve ②'],
  Russian: ['источник ①', 'в источнике ①', 'источники ① и ②', 'документ №①', 'согласно документу ①'],
  Ukrainian: ['джерело ①', 'джерела ① та ②'],
  Greek: ['πηγή ①', 'πηγές ① και ②'],
  Arabic: ['المصدر ①', 'المصدر رقم ①', 'وفقا للمصدر ①', 'المصدر (①)'],
  Hebrew: ['מקור ①', 'מקורות ①, ②'],
  Hindi: ['स्रोत ①', 'दस्तावेज़ ①'],
  Japanese: ['出典①', '（出典：①）', 'この出典①によると', '資料①と②'],
  Chinese: ['来源①', '根据文档①，', '资料[①]', '出处：①', '【①】和【②】'],
  Korean: ['출처 ①', '문서 ①에 따르면', '출처①'],
  Vietnamese: ['nguồn ①', 'tài liệu ①'],
  Indonesian: ['sumber ①', 'dokumen ① dan ②'],
  'JSON and tags': [
    '{"sources":[①,③]}',
    '{\n  "sources": [\n    ①,\n    ③\n  ]\n}',
    '{"sources":["①","③"]}',
    '{"source": ①, "quote": "built in 1931"}',
    '{"source_id": "①"}',
    '{"sourceId": ①}',
    '{"citations":[{"id":①},{"id":②}]}',
    '```json\n{"sources":[①]}\n```',
    '<cite id="①">built</cite>',
    '<source>①</source>',
    '| built | [①] |',
    '| built | Source ① |',
  ],
};
/** What an agent passes to its next tool. */
const INPUTS = [
  '{"id":①}',
  '{"id": "①"}',
  '{"ids": [①, ②]}',
  '{"document_id":①,"max":12}',
  '{"documentId": "①"}',
  '{"url_index": ①}',
  '{"doc": ①}',
  '{"item": ①}',
  '{"result": "①"}',
  '{"articleId": ①, "lines": 200}',
  '{"index": ①}',
];
/** What stands in answers and cites nothing. */
const OTHERS = [
  '① people',
  '$①',
  '① €',
  '①%',
  '[①%]',
  '①.5',
  '①,000',
  '[1.①]',
  'Source ①,000',
  '①th',
  'page ①',
  'v①',
  'a①b',
  '0①',
  '[①-②]',
  'https://x.example/source/①',
  'number of boats: ①',
  'resource ①',
  '(about ①)',
  'in 2024',
  '[12]',
  '(1) first, (2) second',
  '3.5 kg',
];

describe('labels in an answer', () => {
  const { map, labels } = labelled([0, 1, 2]);

  describe.each(Object.entries(CITATIONS))('%s', (_, citations) => {
    it.each(citations)('%s', (text) => {
      expect(map.inAnswer(withLabels(text, labels))).toBe(withLabels(text, GIVEN));
    });
  });

  it.each(OTHERS)('no citation: %s', (text) => {
    expect(map.inAnswer(withLabels(text, labels))).toBe(withLabels(text, labels));
  });

  it.each(INPUTS)('in the input of a tool: %s', (text) => {
    expect(map.inAnswer(withLabels(text, labels))).toBe(withLabels(text, GIVEN));
  });

  it.each(['{"amount": ①}', '{"total":①.5}', '{"limit": ①}'])('no label in the input of a tool: %s', (text) => {
    expect(map.inAnswer(withLabels(text, labels))).toBe(withLabels(text, labels));
  });

  it('are found in the digits of other scripts', () => {
    const in_ = (digits: string) => [...labels[0]!].map((digit) => digits[Number(digit)]).join('');
    expect(map.inAnswer(`[${in_('٠١٢٣٤٥٦٧٨٩')}]`)).toBe('[١]');
    expect(map.inAnswer(`【${in_('０１２３４５６７８９')}】`)).toBe('【１】');
    expect(map.inAnswer(`harbour${in_('⁰¹²³⁴⁵⁶⁷⁸⁹')}.`)).toBe('harbour¹.');
    expect(map.inAnswer(`x${in_('⁰¹²³⁴⁵⁶⁷⁸⁹')}`)).toBe(`x${in_('⁰¹²³⁴⁵⁶⁷⁸⁹')}`);
  });

  it('are what the model would have written with the client’s labels, in any order and language, at any split', () => {
    const ranks = fc.shuffledSubarray([0, 1, 2, 3, 4], { minLength: 3 });
    const piece = fc.constantFrom(...Object.values(CITATIONS).flat(), ...OTHERS.filter((text) => !/[①②③]/.test(text)));
    const answers = fc.array(piece, { minLength: 1, maxLength: 8 }).map((pieces) => pieces.join(' It is so.\n'));
    fc.assert(
      fc.property(ranks, answers, fc.array(fc.integer({ min: 1, max: 9 })), (order, answer, lengths) => {
        const own = labelled(order);
        const mapper = own.map.answerMapper();
        const text = withLabels(answer, own.labels);
        let said = '';
        let from = 0;
        for (const length of lengths) {
          said += mapper.write(text.slice(from, from + length));
          from += length;
        }
        said += mapper.write(text.slice(from)) + mapper.end();
        expect(said).toBe(withLabels(answer, GIVEN));
      }),
      { seed: SEED, numRuns: runs(500) },
    );
  });

  it('come back in an earlier answer as the model wrote them', () => {
    for (const text of Object.values(CITATIONS).flat()) {
      const written = withLabels(`It is so ${text} `, labels);
      expect(map.inPrompt(map.inAnswer(written), 0)).toBe(written);
    }
  });
});

describe('labels in what is said behind the documents', () => {
  const { map, labels } = labelled([0, 1, 2]);
  const asked = (text: string) => map.relabel({ role: 'user', text }, 1, []).text;

  it.each([
    'What does [①] say?',
    'Compare [①] and [②].',
    'Is source ① right?',
    'Was steht in Quelle ②?',
    'And document ③?',
    'Источник ②?',
    '出典①は？',
  ])('a question about a document: %s', (text) => {
    expect(asked(withLabels(text, GIVEN))).toBe(withLabels(text, labels));
  });

  it('a range is written out', () => {
    expect(asked('Compare [1-3].')).toBe(`Compare [${labels.join(', ')}].`);
    expect(asked('Compare [1-9].')).toBe('Compare [1-9].');
  });

  it.each([
    'Why does a[1] fail?',
    'in `list[2]`',
    'f(2) and g(1).',
    'Steps: (1) do, (2) go.',
    '1. First\n2. Second',
    'see page 2',
    'article 1',
    '[1.5] [1:30] [2024-01-02] [2 items]',
    'https://x.example/document/1',
    '10² x² 20 m²',
    '3 documents',
    'document 1.5',
    '$1, 2 kg, 3rd',
    'The number 1 reason, and key 2. No. 3',
    '{"user_id": 1, "amount": 2, "index": 3}',
  ])('other numbers stay: %s', (text) => {
    expect(asked(text)).toBe(text);
    expect(map.inPrompt(text, 0)).toBe(text);
  });
});

describe('labels of several groups of documents', () => {
  const list = (ranks: readonly number[]) =>
    `Sources:\n${ranks.map((rank, place) => `[${place + 1}] ${PASSAGES[rank]}`).join('\n\n')}\n\nQuestion: Who?`;

  it('a number that the client gave to a later document too is not taken for that one', () => {
    const texts: PromptText[] = [
      { role: 'user', text: list([0, 1, 2]) },
      { role: 'assistant', text: 'See [2].' },
      { role: 'user', text: list([3, 4]) },
    ];
    const blocks = recognise(texts, { mode: 'form' });
    const map = LabelMap.of(texts, blocks);
    const label = (group: number, rank: number) => map.labelOf(blocks[group]!, rank)!;
    expect(map.relabel(texts[1]!, 1, []).text).toBe(`See [${label(0, 1)}].`);
    expect(map.inAnswer(`[${label(1, 1)}] [${label(0, 1)}] [${label(0, 2)}]`)).toBe(`[2] [${label(0, 1)}] [3]`);
  });

  it('the same document again has the same label, and the number of the later group', () => {
    const texts: PromptText[] = [
      { role: 'user', text: list([0, 1, 2]) },
      { role: 'assistant', text: 'See [2].' },
      { role: 'user', text: list([3, 1]) },
    ];
    const blocks = recognise(texts, { mode: 'form' });
    const map = LabelMap.of(texts, blocks);
    expect(map.labelOf(blocks[1]!, 1)).toBe(map.labelOf(blocks[0]!, 1));
    expect(map.inAnswer(`[${map.labelOf(blocks[0]!, 1)}]`)).toBe('[2]');
  });

  it('an example of citations between two groups has the labels of the first', () => {
    const text = `Every answer should include at least one source citation. For example:\nSource 1:\nThe sky is red in the evening and blue in the morning.\nSource 2:\nWater is wet when the sky is red.\nQuery: When is water wet?\nAnswer: Water will be wet when the sky is red [2].\nNow it's your turn.\n------\n${PASSAGES.map((passage, i) => `Source ${i + 1}:\n${passage}\n`).join('\n')}\n------\nQuery: Who?\nAnswer: `;
    const texts: PromptText[] = [{ role: 'user', text }];
    const blocks = recognise(texts, { mode: 'form' });
    expect(blocks).toHaveLength(2);
    const map = LabelMap.of(texts, blocks);
    expect(map.relabel(texts[0]!, 0, blocks).text).toContain(`sky is red [${map.labelOf(blocks[0]!, 1)}].`);
  });

  it('a label occurs nowhere else: not in tools, and not in inputs of calls', () => {
    const texts: PromptText[] = [{ role: 'user', text: list([0, 1]) }];
    const blocks = recognise(texts, { mode: 'form' });
    const label = LabelMap.of(texts, blocks).labelOf(blocks[0]!, 0)!;
    const others = [{ text: `{"maximum":${label}}`, behind: -1 }];
    expect(LabelMap.of(texts, blocks, others).labelOf(blocks[0]!, 0)).not.toBe(label);
    const later = [{ text: `{"id":${label}}`, behind: 1 }];
    const grown = [...texts, { role: 'assistant', text: 'x' } as const];
    expect(LabelMap.of(grown, blocks, later).labelOf(blocks[0]!, 0)).toBe(label);
  });
});
