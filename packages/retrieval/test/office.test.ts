import { strToU8, zipSync } from 'fflate';
import { describe, expect, it } from 'vitest';
import { type DocumentFormat, parseDocument } from '../src/parse/formats.ts';

const { signal } = new AbortController();
/** What was read: path of headings, page, header and text of each block. */
async function read(format: DocumentFormat, parts: Readonly<Record<string, string>> | Uint8Array) {
  const bytes =
    parts instanceof Uint8Array
      ? parts
      : zipSync(Object.fromEntries(Object.entries(parts).map(([name, text]) => [name, strToU8(text)])));
  const parsed = await parseDocument(bytes, { format, signal });
  const blocks = parsed.blocks.map(({ headings, page, header, text }) => [
    headings.map((one) => `${one.level} ${one.text}`).join(' › '),
    ...(page === undefined ? [] : [page]),
    header === undefined ? text : `<${header}>\n${text}`,
  ]);
  return { ...parsed, blocks };
}

const style = (id: string, inner: string) => `<w:style w:styleId="${id}">${inner}</w:style>`;
const run = (text: string, settings = '') =>
  `<w:r><w:rPr>${settings}</w:rPr><w:t xml:space="preserve">${text}</w:t></w:r>`;
const paragraph = (inner: string, settings = '') => `<w:p><w:pPr>${settings}</w:pPr>${inner}</w:p>`;
const styled = (name: string, text: string) => paragraph(run(text), `<w:pStyle w:val="${name}"/>`);
const wordTable = (rows: readonly (readonly string[])[]) =>
  `<w:tbl>${rows.map((row) => `<w:tr>${row.map((cell) => `<w:tc>${paragraph(run(cell))}</w:tc>`).join('')}</w:tr>`).join('')}</w:tbl>`;
const docx = (body: string, others: Readonly<Record<string, string>> = {}) => ({
  'word/document.xml': `<?xml version="1.0"?><w:document><w:body>${body}</w:body></w:document>`,
  'word/styles.xml': `<w:styles>${style('Ttl', '<w:name w:val="Title"/>')}${style(
    'berschrift1',
    '<w:name w:val="heading 1"/>',
  )}${style('Mine', '<w:name w:val="Mine"/><w:basedOn w:val="H2"/>')}${style(
    'H2',
    '<w:name w:val="Chapter"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr>',
  )}${style('Loop', '<w:name w:val="Loop"/><w:basedOn w:val="Loop"/>')}</w:styles>`,
  ...others,
});

describe('a Word document', () => {
  it('has its headings by style, also of another language or a style of its own', async () => {
    const { title, blocks } = await read(
      'docx',
      docx(
        [
          styled('Ttl', 'Harbour handbook'),
          styled('berschrift1', 'Pumps'),
          styled('Mine', 'Care'),
          styled('Loop', 'Oil it.'),
          paragraph(run('Rest'), '<w:outlineLvl w:val="2"/>'),
          styled('None', 'Until noon.'),
        ].join(''),
      ),
    );
    expect(title).toBe('Harbour handbook');
    expect(blocks).toEqual([
      ['1 Pumps › 2 Care', 'Oil it.'],
      ['1 Pumps › 2 Care › 3 Rest', 'Until noon.'],
    ]);
  });

  it('has lists, tables with their header, notes where they stand, and powers', async () => {
    const item = (text: string, level: number) =>
      paragraph(run(text), `<w:numPr><w:ilvl w:val="${level}"/><w:numId w:val="1"/></w:numPr>`);
    const { blocks } = await read(
      'docx',
      docx(
        [
          paragraph(
            `${run('Load is 10')}${run('6', '<w:vertAlign w:val="superscript"/>')}${run(' N')}<w:r><w:footnoteReference w:id="2"/></w:r>`,
          ),
          item('Oil', 0),
          item('daily', 1),
          wordTable([
            ['Crane', 'Lifts'],
            ['Orsin', '40 t'],
          ]),
        ].join(''),
        {
          'word/footnotes.xml': `<w:footnotes><w:footnote w:id="2">${paragraph(run('At noon.'))}</w:footnote></w:footnotes>`,
        },
      ),
    );
    expect(blocks).toEqual([
      ['', 'Load is 10⁶ N [At noon.]'],
      ['', '- Oil\n  - daily'],
      ['', '<Crane | Lifts>\nOrsin | 40 t'],
    ]);
  });

  it('has what is shown: neither deleted or hidden text, codes of fields, nor text boxes twice', async () => {
    const { blocks } = await read(
      'docx',
      docx(
        `${paragraph(
          `<w:del>${run('old')}</w:del><w:ins>${run('new')}</w:ins>${run(' secret', '<w:vanish/>')}` +
            `<w:r><w:instrText>PAGE</w:instrText></w:r><w:hyperlink>${run(' link')}</w:hyperlink><w:r><w:tab/><w:t>tab</w:t></w:r>` +
            `<mc:AlternateContent><mc:Choice>${paragraph(run('box'))}</mc:Choice><mc:Fallback>${paragraph(run('box'))}</mc:Fallback></mc:AlternateContent>`,
        )}<w:sdt><w:sdtContent>${paragraph(run('in a field'))}</w:sdtContent></w:sdt>`,
      ),
    );
    expect(blocks).toEqual([
      ['', 'new link\ttab\nbox'],
      ['', 'in a field'],
    ]);
  });
});

describe('an Excel workbook', () => {
  it('has each sheet as a table, with dates, numbers and shared texts as they are shown', async () => {
    const relation = (id: string, target: string) => `<Relationship Id="${id}" Type="x/worksheet" Target="${target}"/>`;
    const { blocks } = await read('xlsx', {
      'xl/workbook.xml':
        '<workbook><sheets><sheet name="Cranes" sheetId="7" r:id="rId2"/><sheet name="Notes" sheetId="1" r:id="rId1"/></sheets></workbook>',
      'xl/_rels/workbook.xml.rels': `<Relationships>${relation('rId1', 'worksheets/a.xml')}${relation('rId2', '/xl/worksheets/b.xml')}</Relationships>`,
      'xl/sharedStrings.xml':
        '<sst><si><t>Crane</t></si><si><r><t>Or</t></r><r><t>sin</t></r><rPh><t>reading</t></rPh></si></sst>',
      'xl/styles.xml':
        '<styleSheet><numFmts><numFmt numFmtId="164" formatCode="d\\.m\\.yyyy"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="22"/></cellXfs></styleSheet>',
      'xl/worksheets/a.xml':
        '<worksheet><sheetData><row><c r="XFD1" t="inlineStr"><is><t>far</t></is></c></row></sheetData></worksheet>',
      'xl/worksheets/b.xml':
        '<worksheet><sheetData><row><c r="A1" t="s"><v>0</v></c><c r="B1" t="str"><v>Since</v></c><c r="D1" t="str"><v>Share</v></c></row>' +
        '<row><c r="A2" t="s"><v>1</v></c><c r="B2" s="1"><v>32203</v></c><c r="D2"><v>0.30000000000000004</v></c></row>' +
        '<row><c r="A3" t="b"><v>1</v></c><c r="B3" s="2"><v>37747.5</v></c><c r="D3" t="e"><v>#N/A</v></c></row></sheetData></worksheet>',
    });
    expect(blocks).toEqual([
      ['1 Cranes', '<Crane | Since | Share>\nOrsin | 1988-03-01 | 0.3\nTRUE | 2003-05-06 12:00:00 | #N/A'],
      ['1 Notes', 'far'],
    ]);
  });
});

describe('a presentation', () => {
  it('has a section a slide, title first, with tables and notes, and no numbers of slides', async () => {
    const shape = (place: string, ...lines: string[]) =>
      `<p:sp><p:nvSpPr><p:cNvPr name="x"/><p:nvPr>${place && `<p:ph type="${place}"/>`}</p:nvPr></p:nvSpPr><p:txBody>${lines
        .map((line) => `<a:p><a:r><a:t>${line}</a:t></a:r></a:p>`)
        .join('')}</p:txBody></p:sp>`;
    const slide = (...shapes: string[]) => `<p:sld><p:cSld><p:spTree>${shapes.join('')}</p:spTree></p:cSld></p:sld>`;
    const cell = (text: string) => `<a:tc><a:txBody><a:p><a:r><a:t>${text}</a:t></a:r></a:p></a:txBody></a:tc>`;
    const table = `<p:graphicFrame><a:graphic><a:tbl><a:tr>${cell('Crane')}${cell('Lifts')}</a:tr><a:tr>${cell('Orsin')}${cell('40 t')}</a:tr></a:tbl></a:graphic></p:graphicFrame>`;
    const { blocks } = await read('pptx', {
      'ppt/presentation.xml':
        '<p:presentation><p:sldIdLst><p:sldId id="256" r:id="b"/><p:sldId id="257" r:id="a"/></p:sldIdLst></p:presentation>',
      'ppt/_rels/presentation.xml.rels':
        '<Relationships><Relationship Id="a" Type="x/slide" Target="slides/slide1.xml"/><Relationship Id="b" Type="x/slide" Target="slides/slide2.xml"/></Relationships>',
      'ppt/slides/slide1.xml': slide(`<p:grpSp>${shape('', 'Cranes lift.')}</p:grpSp>`, shape('sldNum', '2')),
      'ppt/slides/slide2.xml': slide(shape('body', 'One', 'Two'), shape('ctrTitle', 'Pumps'), table),
      'ppt/slides/_rels/slide2.xml.rels':
        '<Relationships><Relationship Id="n" Type="x/notesSlide" Target="../notes/n.xml"/></Relationships>',
      'ppt/notes/n.xml': slide(shape('body', 'Speak slowly.'), shape('sldNum', '1')),
    });
    expect(blocks).toEqual([
      ['1 Pumps', 1, 'One\nTwo'],
      ['1 Pumps', 1, '<Crane | Lifts>\nOrsin | 40 t'],
      ['1 Pumps', 1, 'Speak slowly.'],
      ['1 slide 2', 2, 'Cranes lift.'],
    ]);
  });
});

describe('a file of OpenDocument', () => {
  const content = (inner: string) =>
    `<o:document-content><o:automatic-styles><style:style style:name="T1"><style:text-properties style:text-position="super 58%"/></style:style></o:automatic-styles><office:body>${inner}</office:body></o:document-content>`;
  const row = (cells: readonly string[], end = '') =>
    `<table:table-row>${cells.map((cell) => `<table:table-cell><text:p>${cell}</text:p></table:table-cell>`).join('')}${end}</table:table-row>`;

  it('that is a text has headings, lists, tables, notes and powers', async () => {
    const { title, language, blocks } = await read('opendocument', {
      'meta.xml': '<office:meta><dc:title>Rules</dc:title><dc:language>de-DE</dc:language></office:meta>',
      'content.xml': content(
        '<office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h text:outline-level="1">Pumps</text:h>' +
          '<text:section><text:p>Load is 10<text:span text:style-name="T1">6</text:span><text:s text:c="2"/>N<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>At noon.</text:p></text:note-body></text:note></text:p></text:section>' +
          `<text:list><text:list-item><text:p>Oil</text:p><text:list><text:list-item><text:p>daily</text:p></text:list-item></text:list></text:list-item></text:list><table:table>${row(['Crane', 'Lifts'])}${row(['Orsin', '40 t'])}</table:table></office:text>`,
      ),
    });
    expect([title, language]).toEqual(['Rules', 'de-DE']);
    expect(blocks).toEqual([
      ['1 Pumps', 'Load is 10⁶  N [At noon.]'],
      ['1 Pumps', '- Oil\n  - daily'],
      ['1 Pumps', '<Crane | Lifts>\nOrsin | 40 t'],
    ]);
  });

  it('that is a sheet has no empty end, however far it goes', async () => {
    const empty = '<table:table-cell table:number-columns-repeated="16000"/>';
    const rows = `${row(['Crane', 'Lifts'], empty)}${row(['Orsin', '40 t'])}<table:table-row table:number-rows-repeated="1000000">${empty}</table:table-row>`;
    const { blocks } = await read('opendocument', {
      'content.xml': content(
        `<office:spreadsheet><table:table table:name="Cranes">${rows}</table:table></office:spreadsheet>`,
      ),
    });
    expect(blocks).toEqual([['1 Cranes', '<Crane | Lifts>\nOrsin | 40 t']]);
  });

  it('that is a presentation has a section a slide', async () => {
    const { blocks } = await read('opendocument', {
      'content.xml': content(
        '<office:presentation><draw:page><draw:frame><draw:text-box><text:p>One</text:p></draw:text-box></draw:frame><draw:frame presentation:class="title"><draw:text-box><text:p>Pumps</text:p></draw:text-box></draw:frame></draw:page><draw:page><draw:frame><draw:text-box><text:p>Two</text:p></draw:text-box></draw:frame></draw:page></office:presentation>',
      ),
    });
    expect(blocks).toEqual([
      ['1 Pumps', 1, 'One'],
      ['1 slide 2', 2, 'Two'],
    ]);
  });
});

describe('an EPUB', () => {
  const book = (others: Readonly<Record<string, string>> = {}) => ({
    'META-INF/container.xml': '<container><rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>',
    'in/book.opf':
      '<package><metadata><dc:title>Sea</dc:title><dc:language>en</dc:language></metadata><manifest><item id="a" href="chapter%201.xhtml"/><item id="b" href="b.xhtml"/></manifest><spine><itemref idref="b"/><itemref idref="a"/></spine></package>',
    'in/chapter 1.xhtml': '<html><body><h1>Storm</h1><p>Waves &amp; wind.</p></body></html>',
    'in/b.xhtml': '<html><body><h1>Calm</h1><p>Still water.</p></body></html>',
    ...others,
  });

  it('has its chapters in the order of the spine', async () => {
    const { title, language, blocks } = await read('epub', book());
    expect([title, language]).toEqual(['Sea', 'en']);
    expect(blocks).toEqual([
      ['1 Calm', 'Still water.'],
      ['1 Storm', 'Waves & wind.'],
    ]);
  });

  it('that is encrypted is refused', async () => {
    const encryption = '<encryption><CipherReference URI="in/b.xhtml"/></encryption>';
    await expect(read('epub', book({ 'META-INF/encryption.xml': encryption }))).rejects.toThrow(
      'the book is encrypted',
    );
  });
});

describe('a notebook', () => {
  it('has Markdown as such, code and the beginning of outputs that are text', async () => {
    const notebook = {
      metadata: { kernelspec: { language: 'python' } },
      cells: [
        { cell_type: 'markdown', source: ['# Pumps\n', '\n', 'They lift.'] },
        {
          cell_type: 'code',
          source: 'print("```")',
          outputs: [
            { output_type: 'stream', text: ['x'.repeat(3000)] },
            { output_type: 'display_data', data: { 'image/png': 'aGVsbG8=', 'text/plain': ['<Figure>'] } },
            { output_type: 'error', ename: 'ValueError', evalue: 'no pump' },
          ],
        },
      ],
    };
    const { blocks } = await read('notebook', strToU8(JSON.stringify(notebook)));
    const text = blocks.map((block) => block.at(-1)).join('\n');
    expect(blocks.every(([path]) => path === '1 Pumps')).toBe(true);
    expect(text).toContain('They lift.');
    expect(text).toContain('````python\nprint("```")\n````');
    expect(text).toContain('<Figure>');
    expect(text).toContain('ValueError: no pump');
    expect(text).not.toContain('aGVsbG8');
    expect(text.length).toBeLessThan(2300);
  });
});

describe('a table of commas', () => {
  it.each([
    ['commas and quotes', 'Crane,Lifts\n"Orsin, the ""old""",40 t\n\nVelka,"12\n t"'],
    ['semicolons', '\ufeffCrane;Lifts\n"Orsin, the ""old""";40 t\nVelka;12 t'],
    ['tabs', 'Crane\tLifts\r\n"Orsin, the ""old"""\t40 t\r\nVelka\t12 t'],
  ])('with %s has its header apart', async (_, text) => {
    expect((await read('csv', strToU8(text))).blocks).toEqual([
      ['', '<Crane | Lifts>\nOrsin, the "old" | 40 t\nVelka | 12 t'],
    ]);
  });
});

describe('an office file that is made to harm, or broken', () => {
  const refusal = (format: DocumentFormat, parts: Readonly<Record<string, string>> | Uint8Array) =>
    read(format, parts).then(
      () => 'read',
      (error: Error) => error.message,
    );

  it('is refused with the reason', async () => {
    const old = new Uint8Array([0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]);
    expect(await refusal('docx', old)).toBe('it is encrypted, or in a format of before Office 2007');
    expect(await refusal('docx', strToU8('no archive'))).toBe('the file is broken');
    expect(await refusal('docx', { 'a.xml': '<a/>' })).toBe('the file is broken: it has no word/document.xml');
    expect(await refusal('docx', docx('<w:x>'.repeat(600)))).toBe('its XML is nested deeper than 500 elements');
    const locked = { 'content.xml': 'x', 'META-INF/manifest.xml': '<m><manifest:encryption-data/></m>' };
    expect(await refusal('opendocument', locked)).toBe('it is encrypted');
  });

  /** An archive whose directory says another size for its first part. */
  const withSize = (bytes: Uint8Array, size: number) => {
    const at = Buffer.from(bytes).lastIndexOf(Buffer.from([0x50, 0x4b, 1, 2])) + 24;
    new DataView(bytes.buffer, bytes.byteOffset).setUint32(at, size, true);
    return bytes;
  };

  it('is refused where it grows, before it is unpacked, and gets no more memory than it asks for', async () => {
    const part = strToU8(`<w:body>${paragraph(run('x'.repeat(100_000)))}</w:body>`);
    const packed = () => zipSync({ 'word/document.xml': part });
    expect(await refusal('docx', withSize(packed(), 2 ** 30))).toBe(
      'its text has more than 128 MB when it is unpacked',
    );
    const { blocks } = await read('docx', withSize(packed(), 100)).catch(() => ({ blocks: [] }));
    expect(JSON.stringify(blocks).length).toBeLessThan(200);
  });

  it('has entities of its own as no text', async () => {
    const bomb = `<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><w:body>${paragraph(run('&b; &lt;'))}</w:body>`;
    const { blocks } = await read('docx', { 'word/document.xml': bomb });
    expect(blocks).toEqual([['', '&b; <']]);
  });
});
