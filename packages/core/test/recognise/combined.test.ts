import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { type PromptText, recognise } from '../../src/index.js';
import type { DocumentSpan } from '../../src/recognise/block.js';
import { Region } from '../../src/recognise/format.js';
import { DOCUMENT_FORMATS } from '../../src/recognise/recognise.js';
import { FRAGMENTS } from './fragments.js';
import { PROMPTS } from './prompts/index.js';

const SEED = 20_261_121;

const prompts = PROMPTS.flatMap(({ texts }) => texts.map(([, text]) => text));
/** Mixtures of what tools write, whole and cut, and of signs that formats look for; nothing of it marked. */
const mixtures = fc
  .array(
    fc.oneof(
      fc.constantFrom(...FRAGMENTS),
      fc.constantFrom(...prompts),
      fc.tuple(fc.constantFrom(...prompts), fc.nat(), fc.nat()).map(([text, from, length]) => {
        const start = from % (text.length + 1);
        return text.slice(start, start + (length % (text.length + 1)));
      }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join('').replaceAll('warmpath-documents', 'documents'));

describe('all formats together', () => {
  it('see what each of them sees alone, the surer one first where two see something', () => {
    let blocks = 0;
    fc.assert(
      fc.property(mixtures, fc.constantFrom('user' as const, 'tool' as const), (text, role) => {
        const found = recognise([{ role, text }], { mode: 'form' });
        expect(found.map(({ format, documents }) => ({ format, documents }))).toEqual(naively({ role, text }));
        blocks += found.length;
      }),
      { seed: SEED, numRuns: runs(1_500) },
    );
    expect(blocks).toBeGreaterThan(runs(500));
  });
});

/** Each format by itself over the whole text; then what overlaps nothing surer and opens in no code. */
function naively({ role, text }: PromptText) {
  const taken: { readonly format: string; readonly documents: readonly DocumentSpan[] }[] = [];
  for (const format of DOCUMENT_FORMATS.filter(({ unasked }) => unasked)) {
    const alone = format.find(new Region(text, { role, certain: false }));
    const free = alone.filter(({ start, end }) => !taken.some((other) => overlaps(other.documents, start, end)));
    taken.push(...free.map(({ documents }) => ({ format: format.name, documents })));
  }
  taken.sort((a, b) => a.documents[0]!.start - b.documents[0]!.start);
  let behind = 0;
  let fences = 0;
  return taken.filter(({ format, documents }) => {
    const start = documents[0]!.start;
    fences += [...text.slice(behind, start).matchAll(/^[ \t]*```/gm)].length;
    const inCode = fences % 2 === 1 && format !== 'json';
    behind = inCode ? start : documents.at(-1)!.end;
    return !inCode;
  });
}

function overlaps(documents: readonly DocumentSpan[], start: number, end: number): boolean {
  return start < documents.at(-1)!.end && documents[0]!.start < end;
}
