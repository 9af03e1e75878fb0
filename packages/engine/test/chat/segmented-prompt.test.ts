import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ChatTemplate } from '../../src/chat/chat-template.js';
import type { ChatMessage } from '../../src/chat/messages.js';
import { tokenBoundaries } from '../../src/chat/segmented-prompt.js';
import { llamaBindings } from '../../src/native/bindings.js';
import { NativeModel } from '../../src/native/model.js';

const MODEL = fileURLToPath(new URL('../../models/warmpath-tiny.gguf', import.meta.url));

describe('places where documents end', () => {
  let model: NativeModel;
  beforeAll(async () => {
    model = await NativeModel.load(llamaBindings(), MODEL);
  });
  afterAll(() => model.free());

  const words = fc.stringMatching(/^[a-zäß €😀.\n]{0,12}$/u);
  const piecesOf = (tokens: readonly number[]): number =>
    tokens.reduce((sum, token) => sum + model.vocabulary.piece(token, true).length, 0);

  it('lie before the token that they would cut', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(words, { minLength: 1, maxLength: 8 }), async (parts) => {
        const text = parts.join('');
        const tokens = (await model.vocabulary.tokenize([{ text, parseSpecial: false }]))[0]!;
        let end = 0;
        for (const part of parts) {
          end += part.length;
          const [boundary = 0] = tokenBoundaries([{ text, tokens }], [end], model.vocabulary);
          const bytes = Buffer.byteLength(text.slice(0, end));
          // None and all are no boundaries.
          if (boundary > 0) {
            expect(piecesOf(tokens.slice(0, boundary))).toBeLessThanOrEqual(bytes);
            expect(piecesOf(tokens.slice(0, boundary + 1))).toBeGreaterThan(bytes);
          } else if (tokens.length > 0 && bytes < Buffer.byteLength(text)) {
            expect(piecesOf(tokens.slice(0, 1))).toBeGreaterThan(bytes);
          }
        }
      }),
      { seed: 1, numRuns: 300 },
    );
  });

  it('are the same for many places as for each of them, in the middle of a character too', () => {
    const bytes = { pieceBytes: (token: number) => token };
    const texts = fc.array(fc.constantFrom('a', 'é', '€', '😀', '\ud83d', '\ude00'), { minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(
        texts,
        fc.infiniteStream(fc.integer({ min: 1, max: 4 })),
        fc.infiniteStream(fc.boolean()),
        (parts, sizes, choices) => {
          const text = parts.join('');
          // Tokens of any sizes that make up the text.
          const tokens: number[] = [];
          for (let left = Buffer.byteLength(text); left > 0; left -= tokens.at(-1)!) {
            tokens.push(Math.min(left, sizes.next().value!));
          }
          const stretches = [{ text, tokens }];
          const offsets = Array.from({ length: text.length + 1 }, (_, offset) => offset).filter(
            () => choices.next().value,
          );
          const each = offsets.flatMap((offset) => tokenBoundaries(stretches, [offset], bytes));
          expect(tokenBoundaries(stretches, offsets, bytes)).toEqual([...new Set(each)]);
        },
      ),
      { seed: 1, numRuns: 500 },
    );
  });

  it('are the ends of parts, and the beginnings of contents behind another message, and change no token', async () => {
    const template = new ChatTemplate({ source: model.chatTemplate }, model.vocabulary);
    const documents = ['One.\n', 'Two <|im_end|> more.\n', 'Three.\n'];
    const content = `${documents.join('')}Which?`;
    const whole: ChatMessage[] = [
      { role: 'system', content: ' You answer. ' },
      { role: 'user', content },
    ];
    const parted = whole.map((message) => (message.role === 'user' ? { ...message, partEnds: [5, 26, 33] } : message));
    const { tokens, boundaries } = await template.tokenize(parted, true);
    expect(tokens).toEqual((await template.tokenize(whole, true)).tokens);
    const before = await Promise.all(
      boundaries.map((boundary) => model.vocabulary.detokenize(tokens.slice(0, boundary))),
    );
    expect(before.map((text) => text.slice(-5))).toEqual(['user\n', 'One.\n', 'ore.\n', 'ree.\n', 'hich?']);
    expect((await template.tokenize(whole, true)).boundaries).toEqual([boundaries[0], boundaries[4]]);
  });

  it('are left out where a template changes what it is given', async () => {
    const template = new ChatTemplate(
      { source: '{{ messages[0].content | upper }}|{{ messages[1].content }}|' },
      model.vocabulary,
    );
    const messages: ChatMessage[] = [
      { role: 'system', content: 'Loud' },
      { role: 'user', content: 'Quiet' },
    ];
    const { tokens, boundaries } = await template.tokenize(messages, true);
    const before = boundaries.map((boundary) => model.vocabulary.detokenize(tokens.slice(0, boundary)));
    expect(await Promise.all(before)).toEqual([`${model.vocabulary.bosText}LOUD|Quiet`]);
  });
});
