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
