import { describe, expect, it } from 'vitest';
import { parsePdf } from '../src/parse/parse-pdf.ts';
import { linesOfPage, textOfLines } from '../src/parse/pdf-layout.ts';
import { drawn, pdf, pdfOf } from './hand-written-pdf.js';

const { signal } = new AbortController();
const read = (bytes: Uint8Array) => parsePdf(bytes, { signal });
const textsOf = async (bytes: Uint8Array) =>
  (await read(bytes)).blocks.map(({ header, text }) => (header === undefined ? text : `${header}\n${text}`));
/** Lines below each other. */
const column = (lines: readonly string[], x: number, y = 700) =>
  lines.map((text, row) => ({ text, x, y: y - 14 * row }));
const LEFT = [
  'The committee of the quay met in March and',
  'reviewed the report on the cranes, of which',
  'three were found to be out of order since',
  'the storm of the second week of January.',
];
const RIGHT = [
  'Money is the matter of the second column,',
  'where the costs of a new crane are set to',
  'nine million crowns, of which four million',
  'are for the foundations of the south pier.',
];

describe('a page of a PDF', () => {
  it('is read in paragraphs, page by page, with words that a line end cut joined', async () => {
    const { blocks } = await read(
      pdf([['The harbour mas-', 'ter keeps the tables.', '', '', 'Another paragraph.'], ['Page two.']]),
    );
    expect(blocks).toEqual([
      { headings: [], text: 'The harbour master keeps the tables.', page: 1 },
      { headings: [], text: 'Another paragraph.', page: 1 },
      { headings: [], text: 'Page two.', page: 2 },
    ]);
  });

  it.each([
    ['a soft hyphen', ['The har\u00ad', 'bour opens.'], 'The harbour opens.'],
    ['a typographic hyphen', ['The har\u2010', 'bour opens.'], 'The harbour opens.'],
    ['a hyphen of another script', ['Новая га\u2010', 'вань.'], 'Новая гавань.'],
    ['a name behind the hyphen', ['Read it in UTF-', 'Sixteen letters.'], 'Read it in UTF-Sixteen letters.'],
    ['a hyphen for a word left out', ['Vor-', 'und Nachteile sind gross.'], 'Vor- und Nachteile sind gross.'],
    ['a dash', ['It was too late -', 'much too late.'], 'It was too late - much too late.'],
    ['Chinese', ['港口的管理员每天', '记录潮汐表。'], '港口的管理员每天记录潮汐表。'],
    ['Korean', ['항구 관리자는 매일', '조석표를 기록한다.'], '항구 관리자는 매일 조석표를 기록한다.'],
    ['Chinese and other words', ['这是管理员的', 'Linux 系统'], '这是管理员的 Linux 系统'],
  ])('joins %s at a line end', (_, lines, expected) => {
    const items = lines.map((str, row) => ({ str, width: 200, transform: [10, 0, 0, 10, 50, 700 - 14 * row] }));
    expect(textOfLines(linesOfPage(items))).toBe(expected);
  });

  it.each([
    [
      'Arabic in forms of letters, drawn from left to right',
      [
        ['ﻲﺑﺮﻋ', 50, 20, 'rtl'],
        ['ﺺﻧ', 74, 15, 'rtl'],
      ],
      'نص عربي',
    ],
    [
      'Hebrew, drawn from right to left',
      [
        ['שלום', 80, 20, 'rtl'],
        ['עולם', 50, 25, 'rtl'],
      ],
      'שלום עולם',
    ],
    [
      'other words in Hebrew',
      [
        ['סוף', 50, 20, 'rtl'],
        ['New', 74, 15, 'ltr'],
        ['York', 93, 20, 'ltr'],
        ['התחלה', 117, 30, 'rtl'],
      ],
      'התחלה New York סוף',
    ],
    [
      'Hebrew in other words',
      [
        ['The word', 50, 40, 'ltr'],
        ['עולם', 94, 25, 'rtl'],
        ['שלום', 123, 20, 'rtl'],
        ['is peace.', 147, 40, 'ltr'],
      ],
      'The word שלום עולם is peace.',
    ],
  ] as const)('has its words in reading order: %s', (_, runs, expected) => {
    const items = runs.map(([str, x, width, dir]) => {
      // Letters of a run are in reading order, runs stand where they are seen.
      const text = /[\ufe70-\ufefc]/.test(str) ? Array.from(str).reverse().join('') : str;
      return { str: text, dir, width, transform: [10, 0, 0, 10, x, 700] };
    });
    expect(textOfLines(linesOfPage(items))).toBe(expected);
  });

  it('goes on in the next one where a word or sentence does', async () => {
    expect(await textsOf(pdf([['The keeper of the light-'], ['house, who lives', 'there.']]))).toEqual([
      'The keeper of the lighthouse, who lives there.',
    ]);
  });

  it('has its columns one after the other, whether they were drawn by rows, apart in height, or by columns', async () => {
    const expected = [LEFT.join(' '), RIGHT.join(' ')];
    const rows = LEFT.flatMap((text, row) => [
      { text, x: 50, y: 700 - 14 * row },
      { text: RIGHT[row]!, x: 320, y: 700 - 14 * row },
    ]);
    const apart = rows.map((run, at) => ({ ...run, y: at % 2 === 0 ? run.y : run.y - 5 }));
    for (const runs of [rows, apart, [...column(LEFT, 50), ...column(RIGHT, 320)]]) {
      expect(await textsOf(drawn([runs]))).toEqual(expected);
    }
    const three = LEFT.flatMap((text, row) => [40, 220, 400].map((x) => ({ text, x, y: 700 - 14 * row, size: 7 })));
    expect(await textsOf(drawn([three]))).toEqual([LEFT, LEFT, LEFT].map((lines) => lines.join(' ')));
  });

  it('has a heading of a column in its column, and a line over both columns before them', async () => {
    const runs = LEFT.flatMap((text, row) => [
      { text, x: 50, y: 600 - 14 * row },
      { text: RIGHT[row]!, x: 320, y: 600 - 14 * row },
    ]);
    const wide = {
      text: 'A title that stands over the whole width of the page and both columns',
      x: 50,
      y: 640,
      size: 14,
    };
    const heading = { text: 'Outlook', x: 50, y: 540, size: 12 };
    const tail = LEFT.map((text, row) => ({ text, x: 50, y: 520 - 14 * row }));
    expect(await textsOf(drawn([[wide, ...runs, heading, ...tail]]))).toEqual([
      wide.text,
      LEFT.join(' '),
      'Outlook',
      LEFT.join(' '),
      RIGHT.join(' '),
    ]);
  });

  it('has a table in rows, its cells parted, empty and broken ones, too', async () => {
    const cells = [
      ['Crane', 'Lifts', 'Since'],
      ['Orsin', '40 t', '1988'],
      ['Velka', '', '2003'],
      ['Tamir', '12 t, with', '2011'],
      ['', 'the long arm', ''],
    ];
    const runs = cells.flatMap((row, at) =>
      row.flatMap((text, place) => (text === '' ? [] : [{ text, x: 50 + 120 * place, y: 700 - 14 * at }])),
    );
    const { blocks } = await read(drawn([[...runs, { text: 'All cranes are blue.', x: 50, y: 600 }]]));
    expect(blocks).toEqual([
      {
        headings: [],
        header: 'Crane | Lifts | Since',
        text: 'Orsin | 40 t | 1988\nVelka |  | 2003\nTamir | 12 t, with the long arm | 2011',
        page: 1,
      },
      { headings: [], text: 'All cranes are blue.', page: 1 },
    ]);
  });

  it('has the rows of a table whose cells were drawn one by one, each with all of its lines', async () => {
    const cell = (lines: readonly string[], x: number, y: number) =>
      lines.map((text, at) => ({ text, x, y: y - 12 * at }));
    const runs = [
      ...[cell(['Crane'], 50, 700), cell(['State'], 170, 700), cell(['Since'], 330, 700)],
      ...[
        cell(['Orsin', 'the old'], 50, 670),
        cell(['It stands on the', 'south pier.'], 170, 670),
        cell(['1988'], 330, 670),
      ],
      ...[cell(['Velka'], 50, 630), cell(['In order.'], 170, 630), cell(['2003'], 330, 630)],
    ].flat();
    expect(await textsOf(drawn([runs]))).toEqual([
      'Crane | State | Since\nOrsin the old | It stands on the south pier. | 1988\nVelka | In order. | 2003',
    ]);
  });

  it('has items of a list behind their marks, and no cells', async () => {
    const runs = ['Oil the pump.', 'Turn the wheel.', 'Close the gate.'].flatMap((text, row) => [
      { text: `${row + 1}.`, x: 50, y: 700 - 14 * row },
      { text, x: 80, y: 700 - 14 * row },
    ]);
    expect(await textsOf(drawn([runs]))).toEqual(['1. Oil the pump.\n2. Turn the wheel.\n3. Close the gate.']);
  });

  it('has raised digits as powers, and marks of footnotes before and behind words', async () => {
    const runs = [
      { text: 'Load is 10', x: 50, y: 700 },
      { text: '-6', x: 97, y: 704, size: 6 },
      { text: ' N, see', x: 104, y: 700 },
      { text: '2', x: 135, y: 704, size: 6 },
      { text: '2', x: 50, y: 654, size: 6 },
      { text: 'A footnote.', x: 54, y: 650 },
    ];
    expect(await textsOf(drawn([runs]))).toEqual(['Load is 10⁻⁶ N, see²', '² A footnote.']);
  });

  it('has no dots between entry and page of a table of contents, and keeps the entries apart', async () => {
    const dots = ' . . . . . . . . . . . .';
    expect(await textsOf(pdf([[`1 Pumps${dots} 4`, `2 Cranes${dots}${dots} 17`, 'Wait ... for it.']]))).toEqual([
      '1 Pumps 4\n2 Cranes 17\nWait ... for it.',
    ]);
  });

  it('has Chinese and Japanese lines joined without a space, from fonts outside of the file', async () => {
    const font = '<</Type/Font/Subtype/Type0/BaseFont/HeiseiMin-W3/Encoding/UniJIS-UCS2-H/DescendantFonts[4 0 R]>>';
    const descendant =
      '<</Type/Font/Subtype/CIDFontType0/BaseFont/HeiseiMin-W3/CIDSystemInfo<</Registry(Adobe)/Ordering(Japan1)/Supplement 2>>/DW 1000/FontDescriptor 7 0 R>>';
    const shown = (text: string) => `<${Buffer.from(text, 'utf16le').swap16().toString('hex')}>`;
    const stream = `BT /F1 12 Tf 1 0 0 1 50 700 Tm ${shown('港の管理者は毎日表を')} Tj 1 0 0 1 50 684 Tm ${shown('記録します。')} Tj ET`;
    const bytes = pdfOf([
      '<</Type/Catalog/Pages 2 0 R>>',
      '<</Type/Pages/Kids[5 0 R]/Count 1>>',
      font,
      descendant,
      '<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>/Contents 6 0 R>>',
      `<</Length ${stream.length}>>stream\n${stream}\nendstream`,
      '<</Type/FontDescriptor/FontName/HeiseiMin-W3/Flags 6/ItalicAngle 0>>',
    ]);
    expect(await textsOf(bytes)).toEqual(['港の管理者は毎日表を記録します。']);
  });

  it('has text once that was drawn twice to look bold', async () => {
    const runs = [0, 0.3].map((shift) => ({ text: 'Danger', x: 50 + shift, y: 700 }));
    expect(await textsOf(drawn([runs]))).toEqual(['Danger']);
  });
});

describe('the pages of a PDF', () => {
  const page = (number: number, words: string) => [
    { text: 'Harbour rules', x: 50, y: 780 },
    ...column([`${words} stand on this page.`], 50),
    { text: `${number}`, x: 300, y: 30 },
  ];

  it('have heads once and no numbers, where these stand on every page', async () => {
    const words = ['Ropes', 'Chains', 'Anchors', 'Buoys'];
    expect(await textsOf(drawn(words.map((word, at) => page(at + 9, word))))).toEqual([
      'Harbour rules',
      ...words.map((word) => `${word} stand on this page.`),
    ]);
  });

  it('keep a number that is not that of the page, and a first line that does not repeat', async () => {
    const pages = [4, 8, 2].map((count) => [
      { text: `${count}`, x: 50, y: 780 },
      ...column([`cranes lift ${count} tons.`], 50),
    ]);
    expect((await textsOf(drawn(pages))).join(' ')).toBe(
      '4 cranes lift 4 tons. 8 cranes lift 8 tons. 2 cranes lift 2 tons.',
    );
  });

  it('are read but for broken pages, those beyond a bound, and those without text, which are named', async () => {
    const { blocks, unread } = await read(pdf([['One.'], ['Two.'], ['Three.']], { brokenPages: [3] }));
    expect(blocks.map(({ text }) => text)).toEqual(['One.', 'Two.']);
    expect(unread).toEqual([{ position: 'page 3', message: 'the page is broken' }]);
    const long = await parsePdf(pdf([['One.'], ['Two.'], ['Three.']]), { signal, mostPages: 2 });
    expect(long.blocks).toHaveLength(2);
    expect(long.unread).toEqual([{ position: 'page 3', message: 'the PDF has 3 pages, and 2 are read at most' }]);
    const scanned = await read(drawn([[{ text: 'One.', x: 50, y: 700 }], 'q 0 0 100 100 re f Q', '']));
    expect(scanned.unread).toEqual([{ position: 'page 2', message: 'the page has no text; it may be scanned' }]);
  });

  it('are named where their fonts do not say which characters they show', async () => {
    // A font whose glyphs are all of private use.
    const map = '1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <00> <ff> <e000> endbfrange';
    const stream = 'BT /F1 12 Tf 1 0 0 1 50 700 Tm (secret) Tj /F2 12 Tf 1 0 0 1 50 600 Tm (A few words.) Tj ET';
    const bytes = pdfOf([
      '<</Type/Catalog/Pages 2 0 R>>',
      '<</Type/Pages/Kids[5 0 R]/Count 1>>',
      '<</Type/Font/Subtype/Type1/BaseFont/Helvetica/ToUnicode 4 0 R>>',
      `<</Length ${map.length}>>stream\n${map}\nendstream`,
      '<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R/F2 7 0 R>>>>/Contents 6 0 R>>',
      `<</Length ${stream.length}>>stream\n${stream}\nendstream`,
      '<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>',
    ]);
    const { blocks, unread } = await read(bytes);
    expect(blocks.map(({ text }) => text)).toEqual(['A few words.']);
    expect(unread).toEqual([{ position: 'page 1', message: 'its fonts do not say which characters they show' }]);
  });

  it('stand under the headings of the outline, found by their words or their height', async () => {
    const runs = [
      { text: '1  Pumps', x: 50, y: 700, size: 16 },
      ...column(['The main pump is blue.'], 50, 670),
      { text: '1.1  Care', x: 50, y: 640, size: 14 },
      ...column(['Oil it.', 'Then rest.'], 50, 610),
    ];
    const bytes = drawn(
      [runs, column(['Cranes lift.'], 50)],
      [
        { title: 'Pumps', level: 1, page: 1, top: 720 },
        { title: 'Care', level: 2, page: 1, top: 655 },
        { title: 'After the oil', level: 3, page: 1, top: 606 },
        { title: 'Cranes', level: 1, page: 2 },
      ],
    );
    const { blocks } = await read(bytes);
    expect(
      blocks.map(({ headings, text, page }) => [headings.map((one) => `${one.level} ${one.text}`), text, page]),
    ).toEqual([
      [['1 1 Pumps'], 'The main pump is blue.', 1],
      [['1 1 Pumps', '2 1.1 Care'], 'Oil it.', 1],
      [['1 1 Pumps', '2 1.1 Care', '3 After the oil'], 'Then rest.', 1],
      [['1 Cranes'], 'Cranes lift.', 2],
    ]);
  });
});

describe('a PDF', () => {
  it('that is encrypted, broken or without text is refused, in so many words', async () => {
    const refusal = (bytes: Uint8Array) => read(bytes).catch((error: Error) => error.message);
    expect(await refusal(pdf([['x']], { isLocked: true }))).toBe('the PDF is encrypted');
    expect(await refusal(new Uint8Array(Buffer.from('%PDF-1.7 no more')))).toBe('the PDF is broken');
    expect(await refusal(new Uint8Array(0))).toBe('the PDF is broken');
    expect(await refusal(pdf([[]]))).toBe('the PDF has no text; it may be scanned');
    expect(await refusal(pdf([['x'.repeat(500)]]).subarray(0, 300))).toMatch(/^the PDF (is broken|has no text)/);
  });
});
