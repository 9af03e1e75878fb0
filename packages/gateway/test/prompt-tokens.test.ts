import { describe, expect, test } from 'vitest';
import { readPromptTokens, tokenizeBody } from '../src/engines/prompt-tokens.js';
import { BodyView } from '../src/json/json-body.js';

describe('the tokens of a prompt', () => {
  test('are asked for with what decides them, and nothing else', () => {
    const body = { model: 'm', messages: [{ role: 'user', content: 'é' }], stream: true, tools: [], temperature: 0 };
    const asked = tokenizeBody(new BodyView(Buffer.from(JSON.stringify(body))), 'chat')!;
    expect(JSON.parse(asked.toString())).toEqual({
      model: 'm',
      messages: body.messages,
      tools: [],
      with_pieces: true,
      return_token_strs: true,
    });
    expect(tokenizeBody(new BodyView(Buffer.from('{"prompt":[1,2]}')), 'completions')).toBeUndefined();
    expect(
      JSON.parse(tokenizeBody(new BodyView(Buffer.from('{"prompt":"x","n":1}')), 'completions')!.toString()),
    ).toMatchObject({
      prompt: 'x',
    });
  });

  test('of Messages and Responses are asked for in a translation, with the system prompt', () => {
    const bodies = [
      ['messages', { model: 'm', system: 'Be brief.', messages: [{ role: 'user', content: 'é' }], max_tokens: 4 }],
      ['responses', { model: 'm', instructions: 'Be brief.', input: 'é', max_output_tokens: 4 }],
    ] as const;
    for (const [api, body] of bodies) {
      const asked = tokenizeBody(new BodyView(Buffer.from(JSON.stringify(body))), api)!;
      const { messages } = JSON.parse(asked.toString()) as { messages: unknown };
      expect(messages).toMatchObject([
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'é' },
      ]);
    }
    const untranslatable = Buffer.from('{"model":"m","input":[{"type":"item_reference","id":"x"}]}');
    expect(() => tokenizeBody(new BodyView(untranslatable), 'responses')).toThrow();
  });

  const documents = ['<d>grün</d>\n', '<d>two</d>\n'];

  /** Bytes cut anywhere, also within a character. */
  function pieces(text: string, lengths: readonly number[]): Buffer[] {
    const bytes = Buffer.from(text);
    const starts = lengths.map((_, place) => lengths.slice(0, place).reduce((sum, length) => sum + length, 0));
    return lengths.map((length, place) => bytes.subarray(starts[place]!, starts[place]! + length));
  }

  const text = `<s>ab${documents.join('')}why?`;
  const cut = pieces(text, [3, 2, 6, 1, 6, 7, 4, 1, 3]);

  test('end where documents end, in the answer of llama-server and of the embedded engine', () => {
    const tokens = cut.map((piece, id) => {
      const asText = piece.toString();
      return { id: id + 10, piece: Buffer.from(asText).equals(piece) ? asText : [...piece] };
    });
    expect(tokens.some(({ piece }) => Array.isArray(piece))).toBe(true);
    expect(readPromptTokens(Buffer.from(JSON.stringify({ tokens })), documents)).toEqual({
      tokens: [10, 11, 12, 13, 14, 15, 16, 17, 18],
      preambleEnd: 2,
      documentEnds: [5, 7],
    });
  });

  test('the same in the answer of vLLM, as byte-level BPE and with spaces of SentencePiece', () => {
    const strings = ['<s>', 'Ġa', 'ĊĠb', '<d>gr', 'Ã', '¼', 'n</d>Ċ', 'end'];
    expect(
      readPromptTokens(Buffer.from(JSON.stringify({ tokens: [1, 2, 3, 4, 5, 6, 7, 8], token_strs: strings })), [
        '<d>grün</d>\n',
      ]),
    ).toEqual({ tokens: [1, 2, 3, 4, 5, 6, 7, 8], preambleEnd: 3, documentEnds: [7] });
    expect(
      readPromptTokens(Buffer.from(JSON.stringify({ tokens: [1, 2, 3], token_strs: ['<s>', '▁a', '▁b'] })), [' a']),
    ).toEqual({ tokens: [1, 2, 3], preambleEnd: 1, documentEnds: [2] });
  });

  test('a token that two documents share belongs to the second', () => {
    const tokens = [
      { id: 1, piece: 'on' },
      { id: 2, piece: 'e t' },
      { id: 3, piece: 'wo' },
    ];
    expect(readPromptTokens(Buffer.from(JSON.stringify({ tokens })), ['one', ' two'])).toMatchObject({
      preambleEnd: 0,
      documentEnds: [1, 3],
    });
  });

  test.each([
    ['no JSON', 'x', []],
    ['null', 'null', []],
    ['no tokens', '{"count":3}', []],
    ['tokens without texts', '{"tokens":[1,2]}', []],
    ['tokens that are none', '{"tokens":[{"id":"x","piece":"a"}]}', []],
    ['a document that is not there', '{"tokens":[{"id":1,"piece":"a"}]}', ['b']],
  ])('%s is no answer', (_, answer, wanted) => {
    expect(readPromptTokens(Buffer.from(answer), wanted)).toBeUndefined();
  });
});
