import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../../test/suite.js';
import type { GenerationRequest } from '../../src/loop/generation.js';
import { GenerationTask, type TokenPieces } from '../../src/loop/task.js';

const REQUEST: GenerationRequest = {
  id: 'test',
  prompt: [0],
  maxTokens: 1000,
  sampling: { temperature: 0, topP: 1 },
  seed: 1,
  stops: [],
  ignoreEndOfGeneration: false,
};

/** Token 0 ends the generation; token i is the i-th piece. */
function vocabularyOf(pieces: readonly Uint8Array[]): TokenPieces {
  const grammars = {
    open: () => {
      throw new Error('There are no grammars here');
    },
  };
  return { piece: (token) => pieces[token - 1]!, endsGeneration: (token) => token === 0, grammars };
}

function logitsFor(token: number, size: number): Float32Array {
  const logits = new Float32Array(size);
  logits[token] = 1;
  return logits;
}

/** Generates the pieces in order and then the end; answers the texts as they came out. */
function generate(pieces: readonly Uint8Array[], request: Partial<GenerationRequest> = {}) {
  const texts: string[] = [];
  const listener = { onText: (text: string) => texts.push(text), onFinish: () => undefined, onError: () => undefined };
  const task = new GenerationTask({ ...REQUEST, ...request }, listener, 0);
  const vocabulary = vocabularyOf(pieces);
  let reason: string | undefined;
  for (let token = 1; token <= pieces.length + 1 && reason === undefined; token++) {
    reason = task.advance(logitsFor(token % (pieces.length + 1), pieces.length + 1), vocabulary, 10_000, token);
  }
  return { texts, reason, task };
}

/** A text's bytes, cut anywhere. */
const cutText = fc
  .tuple(
    fc.string({ unit: 'binary', maxLength: 20, size: 'max' }),
    fc.array(fc.nat({ max: 3 }), { minLength: 80, maxLength: 80, size: 'max' }),
  )
  .map(([text, lengths]) => {
    const bytes = new TextEncoder().encode(text);
    const pieces: Uint8Array[] = [];
    for (let start = 0, index = 0; start < bytes.length; index++) {
      const end = start + 1 + lengths[index % lengths.length]!;
      pieces.push(bytes.slice(start, end));
      start = end;
    }
    // Lone surrogates have no bytes of their own; what the encoder made of them is what can come back.
    return { text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), pieces };
  });

describe('the text of a generation', () => {
  it('is whole characters only, however tokens cut them', () => {
    fc.assert(
      fc.property(cutText, ({ text, pieces }) => {
        const { texts, reason } = generate(pieces);
        expect(texts.join('')).toBe(text);
        expect(texts.every((part) => part !== '')).toBe(true);
        expect(reason).toBe('stop');
      }),
      { seed: 1, numRuns: runs(500) },
    );
  });

  it('shows a character that was cut off at the end as a replacement character', () => {
    const bytes = new TextEncoder().encode('🌍');
    expect(generate([bytes.slice(0, 2)]).texts.join('')).toBe('�');
    expect(generate([bytes.slice(0, 2), bytes.slice(2)]).texts).toEqual(['🌍']);
  });

  it('passes on what was held back for a stop string when it ends before one', () => {
    const bytes = [...'abcEN'].map((letter) => new TextEncoder().encode(letter));
    const { texts, reason } = generate(bytes, { stops: ['END'], maxTokens: 5 });
    expect(texts.join('')).toBe('abcEN');
    expect(reason).toBe('length');
  });

  it('stops at a stop string whose characters are cut into tokens', () => {
    const bytes = new TextEncoder().encode('before→after');
    const pieces = Array.from(bytes, (byte) => Uint8Array.of(byte));
    const { texts, reason, task } = generate(pieces, { stops: ['→'] });
    expect(texts.join('')).toBe('before');
    expect(reason).toBe('stop');
    expect(task.generated).toBe(9);
  });
});

describe('what a task found in the cache', () => {
  const listener = { onText: () => undefined, onFinish: () => undefined, onError: () => undefined };

  it('counts every token of the prompt once, whatever it loses and finds again, and no more than there are', () => {
    const some = fc.nat({ max: 30 });
    const found = fc.record({ device: some, host: some, disk: some, computes: some });
    fc.assert(
      fc.property(fc.array(fc.array(found, { maxLength: 4 }), { minLength: 1, maxLength: 5 }), (attempts) => {
        const task = new GenerationTask({ ...REQUEST, prompt: new Array(100).fill(0) }, listener, 0);
        // Who had each token first: the device, the host, the disk, or the task's own computation.
        const first: string[] = [];
        const reach = (who: string, wanted: number): number => {
          const count = Math.min(wanted, 99 - task.computed);
          return Array.from({ length: count }, (_, index) => (first[task.computed + index] ??= who)).length;
        };
        for (const attempt of attempts) {
          task.loseCells();
          for (const { device, host, disk, computes } of attempt) {
            task.share({ device: reach('device', device), host: 0, disk: 0 });
            task.share({ device: 0, host: reach('host', host), disk: 0 });
            task.share({ device: 0, host: 0, disk: reach('disk', disk) });
            task.computed += reach('own', computes);
          }
        }
        const { cachedTokens, cachedByTier } = task.result('length');
        const had = (who: string): number => first.filter((each) => each === who).length;
        expect(cachedByTier).toEqual({ device: had('device'), host: had('host'), disk: had('disk') });
        expect(cachedTokens).toBeLessThan(100);
      }),
      { seed: 3, numRuns: runs(300) },
    );
  });
});
