import { describe, expect, it } from 'vitest';
import { parseHtml } from '../src/parse/parse-html.ts';

/** Paths and texts of a page's blocks; of a table with its header. */
const blocksOf = (page: string) =>
  parseHtml(page).blocks.map(({ headings, header, text }) => [
    headings.map((heading) => heading.text).join(' › '),
    header === undefined ? text : `${header}\n${text}`,
  ]);

describe('a page', () => {
  it.each<[what: string, page: string, blocks: string[][]]>([
    [
      'a heading that another one closes',
      '<h1>M</h1>in<h2>Pumps</h3><p>42 kg.<p>7 kg.</p><h2>Other</h2>tail',
      [
        ['M', 'in'],
        ['M › Pumps', '42 kg.'],
        ['M › Pumps', '7 kg.'],
        ['M › Other', 'tail'],
      ],
    ],
    [
      'a heading that is never closed',
      '<h2>Open<p>One <b>two</b></p>three<ul><li>four</ul><h2>Next</h2>five',
      [
        ['Open', 'One two'],
        ['Open', 'three'],
        ['Open', '- four'],
        ['Next', 'five'],
      ],
    ],
    ['a heading with its words in an element', '<h2><div>Deep <i>words</i></div></h2>text', [['Deep words', 'text']]],
    ['a head that is never closed', '<html><head><meta name=x><p>Here. <b>There', [['', 'Here. There']]],
    ['a title that is never closed', '<title>T\n<p>Here.', [['', 'Here.']]],
    [
      'elements that XHTML closes',
      '<script src="a"/><p>One <a name="b"/>two<style/>three<br/>four',
      [['', 'One twothree\nfour']],
    ],
    ["XHTML's sections", '<p>One <![CDATA[a < b && c]]> two <![CDATA[open', [['', 'One a < b && c two']]],
    [
      'lists and tables from which navigation was left out',
      '<ul><li><nav>x</nav><li></ul><table><tr><td><nav>y</nav><td></table><p role=navigation>z</p>text',
      [['', 'text']],
    ],
    [
      'marks that link to a heading',
      '<h2>One<a class="headerlink" href="#one">¶</a></h2>a<h2><a href="#two">#</a> Two<span class="mw-editsection">[edit]</span></h2>b<h2>Three<a href="#3" aria-hidden="true"></a></h2>c',
      [
        ['One', 'a'],
        ['Two', 'b'],
        ['Three', 'c'],
      ],
    ],
    [
      'boxes, whose headings head nothing behind them',
      '<h2>Use</h2><div class="note"><h3>Note</h3>box</div>behind<aside><h2>Side</h2>x</aside>last<section><h3>In</h3>y</section>out',
      [
        ['Use › Note', 'box'],
        ['Use', 'behind'],
        ['Side', 'x'],
        ['Use', 'last'],
        ['Use › In', 'y'],
        ['Use', 'out'],
      ],
    ],
    ['a part that is only a heading', '<section><h1>T</h1></section><section>x</section>', [['T', 'x']]],
    [
      'raised and lowered text',
      'One 10<sup>6</sup> 10<sup>−3</sup> x<sup>n+1</sup> e<sup>x</sup> H<sub>2</sub>O a<sub>i</sub> 1<sup>st</sup> word<sup><a href="#n1">1</a></sup> note<sup>[2]</sup>',
      [['', 'One 10⁶ 10⁻³ x^(n+1) e^x H₂O a_i 1st word[1] note[2]']],
    ],
    [
      'tables with their header',
      '<table><caption>Prices</caption><thead><tr><th>Name<th>EUR</thead><tr><td>A|B<td><p>1</p><p>2</p><tr><td colspan=2>Both</table>',
      [['', 'Prices\n| Name | EUR |\n| --- | --- |\n| A\\|B | 1 2 |\n| Both |  |']],
    ],
    [
      'tables whose first row has header cells, and those without one',
      '<table><tr><th>A<th>B<tr><th>x<td>1</table><table><tr><td>1<td>2</table>',
      [
        ['', '| A | B |\n| --- | --- |\n| x | 1 |'],
        ['', '| 1 | 2 |'],
      ],
    ],
    [
      'tables that hold a page',
      '<table><tr><td><h2>Left</h2>a<td><table><tr><td>1<td>2</table></table>',
      [
        ['Left', 'a'],
        ['', '| 1 | 2 |'],
      ],
    ],
    [
      'lists in lists, and paragraphs and programs in them',
      '<ol start=3><li>One<ul><li>a<li>b</ul><li><p>Two</p><pre>x\n  y</pre></ol><dl><dt>T<dd>D<dt>U<dd>E</dl>',
      [
        ['', '3. One\n   - a\n   - b\n4. Two\n   x\n     y'],
        ['', 'T\n: D\nU\n: E'],
      ],
    ],
    [
      'lists with headings in them',
      '<ul><li><h3>put</h3>Puts.<li><h3>get</h3>Gets.</ul>end',
      [
        ['put', 'Puts.'],
        ['get', 'Gets.'],
        ['', 'end'],
      ],
    ],
    ['programs as they stand', '<pre>\n# a\n\n\tb  \n</pre>', [['', '# a\n\n\tb']]],
    ['pictures as their words', '<p>See <img alt="a pump" src=x> and <img alt="">.', [['', 'See a pump and .']]],
    [
      'nothing that is hidden',
      '<p hidden>a</p><div style="color:red; display: none">b</div><p>c<span aria-hidden=true>d</span></p><div aria-hidden=true>e</div>',
      [
        ['', 'c'],
        ['', 'e'],
      ],
    ],
    [
      'headings without text',
      '<h1>A</h1><h2>B</h2><h2>C</h2>x<h1>D</h1>',
      [
        ['A › B', ''],
        ['A › C', 'x'],
        ['D', ''],
      ],
    ],
    [
      'words with readings',
      '<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby><ruby>字<rt>ji</rt></ruby>',
      [['', '漢(kan)字(ji)']],
    ],
  ])('has %s', (_, page, blocks) => {
    expect(blocksOf(page)).toEqual(blocks);
  });

  it('has a title and a language, and its blocks have the lines of the source', () => {
    const page = '<!doctype html>\n<html lang="de">\n<title>A &amp; B</title>\n<p>One\ntwo</p>\n<ul>\n<li>x\n</ul>\n';
    const { title, language, blocks } = parseHtml(page);
    expect([title, language]).toEqual(['A & B', 'de']);
    expect(blocks).toEqual([
      { headings: [], text: 'One two', line: 4, lines: 2 },
      { headings: [], text: '- x', line: 6, lines: 3 },
    ]);
  });

  it('that is nested deeper than any is read without its elements', () => {
    expect(blocksOf(`${'<div><i>'.repeat(2_000)}deep<p>words`).map(([, text]) => text?.trim())).toEqual(['deep words']);
  });
});
