import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';
import { Vocabulary } from '../../src/native/vocabulary.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));
/** Longer than what is tokenised in one go. */
const LONG = `${' '.repeat(40_000)}The end of Marlo. 😀`;

describe('a vocabulary', () => {
  let model: NativeModel;
  let vocabulary: Vocabulary;
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
    vocabulary = model.vocabulary;
  });
  afterAll(() => model.free());

  const one = async (text: string, options = {}): Promise<number[]> =>
    (await vocabulary.tokenize([{ text, parseSpecial: false }], options))[0]!;
  const tooLong = expect.objectContaining({ code: 'WARMPATH_CONTEXT_TOO_LONG' });

  it('knows of every token what the library says, control tokens as their text and as nothing', () => {
    const bindings = llamaBindings();
    const vocab = bindings.getVocab(model.pointer)!;
    const buffer = new Uint8Array(256);
    for (let token = 0; token < vocabulary.size; token++) {
      for (const special of [false, true]) {
        const length = bindings.tokenToPiece(vocab, token, buffer, buffer.length, 0, special);
        expect(Buffer.from(vocabulary.piece(token, special))).toEqual(Buffer.from(buffer.subarray(0, length)));
      }
      expect(vocabulary.pieceBytes(token)).toBe(vocabulary.piece(token, true).length);
    }
    const reads = vi.fn(bindings.tokenToPiece);
    const again = new Vocabulary({ ...bindings, tokenToPiece: reads }, vocab);
    again.grammars.open('root ::= "a"').free();
    again.grammars.free();
    expect(reads).toHaveBeenCalledTimes(vocabulary.size);
  });

  it('takes a text that has as many tokens as there is room for, and refuses one with more', async () => {
    const parts = fc.constantFrom(' ', '                ', 'the', 'é', '😀', '\n', 'weight', '<|im_end|>', '\ud800');
    await fc.assert(
      fc.asyncProperty(fc.array(fc.array(parts, { minLength: 1 }), { minLength: 1, maxLength: 4 }), async (texts) => {
        const stretches = texts.map((text, index) => ({ text: text.join(''), parseSpecial: index % 2 === 0 }));
        const tokens = await vocabulary.tokenize(stretches);
        const count = tokens.flat().length;
        expect(await vocabulary.tokenize(stretches, { most: count })).toEqual(tokens);
        await expect(vocabulary.tokenize(stretches, { most: count - 1 })).rejects.toThrow(tooLong);
      }),
      { seed: 1, numRuns: 300 },
    );
  });

  it('tokenises a long text beside the event loop, and the same as in parts', async () => {
    let turns = 0;
    let isDone = false;
    const count = (): void => {
      turns++;
      if (!isDone) setImmediate(count);
    };
    setImmediate(count);
    const tokens = await one(LONG);
    isDone = true;
    expect(turns).toBeGreaterThan(0);
    expect(await vocabulary.detokenize(tokens)).toBe(LONG);
    const room = { most: tokens.length };
    expect(await one(LONG, room)).toEqual(tokens);
    await expect(one(LONG, { most: room.most - 1 })).rejects.toThrow(tooLong);
  });

  it('tokenises long texts one after the other, and none that nobody wants any more', async () => {
    const done: string[] = [];
    const texts = ['first', 'left', 'last'].map(async (name) => {
      const result = one(LONG + name, { isWanted: () => name !== 'left' });
      await result.catch((error: { code: string }) => done.push(error.code));
      done.push(name);
    });
    await vocabulary.settled();
    await Promise.all(texts);
    expect(done).toEqual(['first', 'WARMPATH_CLIENT_CLOSED', 'left', 'last']);
  });

  it('refuses what would be cut at too many special tokens, before it is', async () => {
    const spelt = (count: number): { text: string; parseSpecial: boolean }[] => [
      { text: '<|im_end|>'.repeat(count), parseSpecial: true },
    ];
    await expect(vocabulary.tokenize(spelt(16_385))).rejects.toThrow(
      expect.objectContaining({ code: 'WARMPATH_BODY_TOO_COMPLEX' }),
    );
    expect((await vocabulary.tokenize(spelt(2_000)))[0]).toHaveLength(2_000);
  });

  it('turns many tokens back beside the event loop', async () => {
    const order: string[] = [];
    const text = vocabulary.detokenize(new Array<number>(9_000).fill(300)).then((answer) => {
      order.push('text');
      return answer;
    });
    setImmediate(() => order.push('turn'));
    expect(Buffer.byteLength(await text)).toBe(9_000 * vocabulary.pieceBytes(300));
    expect(order).toEqual(['turn', 'text']);
  });
});
