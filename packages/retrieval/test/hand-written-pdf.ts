import { deflateSync } from 'node:zlib';

/**
 * A PDF with a page of these lines each, written by hand. Of a broken page, by its number, the object is none. Where it
 * is packed, so is the content of each page.
 */
export function pdf(
  pages: readonly (readonly string[])[],
  {
    brokenPages = [],
    isLocked = false,
    isPacked = false,
  }: { readonly brokenPages?: readonly number[]; readonly isLocked?: boolean; readonly isPacked?: boolean } = {},
): Uint8Array {
  const objects = ['<</Type/Catalog/Pages 2 0 R>>'];
  const kids = pages.map((_, page) => `${4 + 2 * page} 0 R`).join(' ');
  objects.push(`<</Type/Pages/Kids[${kids}]/Count ${pages.length}>>`);
  objects.push('<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>');
  for (const [page, lines] of pages.entries()) {
    const text = lines.map((line, row) => `1 0 0 1 50 ${700 - 14 * row} Tm (${line}) Tj`).join('\n');
    const plain = `BT /F1 12 Tf\n${text}\nET`;
    const stream = isPacked ? deflateSync(plain).toString('latin1') : plain;
    const filter = isPacked ? '/Filter/FlateDecode' : '';
    const fields = '/Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>';
    objects.push(
      brokenPages.includes(page + 1) ? '[]' : `<<${fields}/Contents ${5 + 2 * page} 0 R>>`,
      `<<${filter}/Length ${stream.length}>>stream\n${stream}\nendstream`,
    );
  }
  const word = `<${'41'.repeat(32)}>`;
  const encrypt = isLocked ? `/Encrypt<</Filter/Standard/V 1/R 2/O${word}/U${word}/P -4>>/ID[<00><00>]` : '';
  return pdfOf(objects, encrypt);
}

/** Text at a place of a page, in 10 points if nothing else is said. */
interface DrawnText {
  readonly text: string;
  readonly x: number;
  readonly y: number;
  readonly size?: number;
}

/** An entry of the outline, in the order of the document. */
interface OutlineLine {
  readonly title: string;
  readonly level: number;
  readonly page: number;
  readonly top?: number;
}

/** A PDF whose pages have these texts, in this order, or are this content; with an outline. */
export function drawn(
  pages: readonly (readonly DrawnText[] | string)[],
  outline: readonly OutlineLine[] = [],
): Uint8Array {
  const first = 4 + 2 * pages.length;
  const objects = [
    `<</Type/Catalog/Pages 2 0 R${outline.length > 0 ? `/Outlines ${first} 0 R` : ''}>>`,
    `<</Type/Pages/Kids[${pages.map((_, page) => `${4 + 2 * page} 0 R`).join(' ')}]/Count ${pages.length}>>`,
    '<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>',
  ];
  for (const [number, page] of pages.entries()) {
    const texts = (typeof page === 'string' ? [] : page).map(
      ({ text, x, y, size = 10 }) => `/F1 ${size} Tf 1 0 0 1 ${x} ${y} Tm (${text}) Tj`,
    );
    const stream = typeof page === 'string' ? page : `BT\n${texts.join('\n')}\nET`;
    objects.push(
      `<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F1 3 0 R>>>>/Contents ${5 + 2 * number} 0 R>>`,
      `<</Length ${stream.length}>>stream\n${stream}\nendstream`,
    );
  }
  const at = (place: number) => `${first + 1 + place} 0 R`;
  const siblings = (parent: number) => {
    const places: number[] = [];
    const level = parent < 0 ? 1 : outline[parent]!.level + 1;
    for (let place = parent + 1; place < outline.length && outline[place]!.level >= level; place++) {
      if (outline[place]!.level === level) places.push(place);
    }
    return places;
  };
  const ends = (places: readonly number[]) =>
    places.length === 0 ? '' : `/First ${at(places[0]!)}/Last ${at(places.at(-1)!)}/Count ${places.length}`;
  if (outline.length > 0) objects.push(`<<${ends(siblings(-1))}>>`);
  for (const [place, { title, level, page, top }] of outline.entries()) {
    const parent = outline.slice(0, place).findLastIndex((line) => line.level < level);
    const beside = siblings(parent);
    const next = beside[beside.indexOf(place) + 1];
    const dest = `/Dest[${2 + 2 * page} 0 R${top === undefined ? '/Fit' : `/XYZ 0 ${top} 0`}]`;
    const links = `/Parent ${parent < 0 ? `${first} 0 R` : at(parent)}${next === undefined ? '' : `/Next ${at(next)}`}`;
    objects.push(`<</Title(${title})${dest}${links}${ends(siblings(place))}>>`);
  }
  return pdfOf(objects);
}

/** A PDF of these objects, the first of which is the catalog. */
export function pdfOf(objects: readonly string[], trailer = ''): Uint8Array {
  let text = '%PDF-1.4\n';
  const offsets = objects.map((object, number) => {
    const at = text.length;
    text += `${number + 1} 0 obj${object}endobj\n`;
    return `${String(at).padStart(10, '0')} 00000 n \n`;
  });
  const start = text.length;
  text += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${offsets.join('')}`;
  text += `trailer<</Size ${objects.length + 1}/Root 1 0 R${trailer}>>\nstartxref\n${start}\n%%EOF`;
  return new Uint8Array(Buffer.from(text, 'latin1'));
}
