import { describe, expect, it } from 'vitest';
import { DOCUMENTS, labelsIn, send, stand } from './harness.js';

const [VELKA, ORSIN, TAMIR] = DOCUMENTS;
const PATH = '/v1/messages';
const REQUEST = { model: 'm', max_tokens: 9, messages: [{ role: 'user', content: 'What do they weigh?' }] };

describe('cache breakpoints', () => {
  const mark = { type: 'ephemeral' };

  async function sent(
    fields: object,
    documents: readonly object[] = [VELKA, ORSIN],
    layout: 'question' | 'system' = 'question',
  ) {
    const upstream = { messages: 'native', cacheBreakpoints: true } as const;
    const { engine, gateway } = await stand(undefined, { upstream, arrange: { layout, hints: false } });
    for (const list of [[VELKA, ORSIN], documents]) {
      await send(gateway.url + PATH, { ...REQUEST, ...fields, documents: list });
    }
    return JSON.parse(engine.last.body) as { system?: Block[]; messages: { content: Block[] }[] };
  }
  interface Block {
    readonly type: string;
    readonly text: string;
    readonly cache_control?: object;
  }
  const shape = (blocks: readonly Block[]) =>
    blocks.map(({ text, cache_control: marked }) => [labelsIn(text).join(' ') || text, marked]);

  it('stand behind the documents, and behind those that were served before', async () => {
    const question = ['What do they weigh?', undefined];
    expect(shape((await sent({})).messages[0]!.content)).toEqual([['velka orsin', mark], question]);
    expect(shape((await sent({}, [TAMIR, ORSIN, VELKA])).messages[0]!.content)).toEqual([
      ['velka orsin', mark],
      ['tamir', mark],
      question,
    ]);
    const system = [{ type: 'text', text: 'Be brief.', cache_control: mark }];
    expect(shape((await sent({ system }, [TAMIR, VELKA, ORSIN], 'system')).system!)).toEqual([
      ['Be brief.', mark],
      ['velka orsin', mark],
      ['tamir', mark],
    ]);
  });

  it('stand at the end of the message in a conversation with a name, whose messages are sent again as they were', async () => {
    const [message] = (await sent({ warmpath: { session: 's' } }, [TAMIR, ORSIN, VELKA])).messages;
    expect(message!.content).toHaveLength(1);
    expect(message!.content[0]).toMatchObject({ cache_control: mark });
    expect(message!.content[0]!.text.endsWith('What do they weigh?')).toBe(true);
    expect(labelsIn(message!.content[0]!.text)).toHaveLength(3);
  });

  it.each([
    [2, ['velka orsin', 'tamir']],
    [3, ['velka orsin tamir']],
    [4, []],
  ])("make no more than four with the client's own %i", async (count, expected) => {
    const tools = Array.from({ length: count }, (_, at) => ({ name: `t${at}`, input_schema: {}, cache_control: mark }));
    const { content } = (await sent({ tools }, [TAMIR, ORSIN, VELKA])).messages[0]!;
    const marked = Array.isArray(content) ? content.filter((block) => block.cache_control !== undefined) : [];
    expect(marked.map(({ text }) => labelsIn(text).join(' '))).toEqual(expected);
  });

  it('are not set without being asked for, nor for chat completions', async () => {
    const { engine, gateway } = await stand(undefined, { upstream: { messages: 'native' } });
    await send(gateway.url + PATH, { ...REQUEST, documents: [VELKA] });
    expect(engine.last.body).not.toContain('cache_control');
    const marking = await stand(undefined, { upstream: { cacheBreakpoints: true } });
    const chat = { messages: [{ role: 'user', content: 'Q' }], documents: [VELKA] };
    await send(`${marking.gateway.url}/v1/chat/completions`, chat);
    expect(marking.engine.last.body).not.toContain('cache_control');
  });
});
