import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Warmpath } from '@warmpath/client';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { callsTool, lettersIn, passages, type RealGateway, realGateway, timesIn } from '../../../test/real-gateway.js';
import { Corpus, startMcpHttp } from '../src/index.js';

let gateway: RealGateway;
const open: (() => Promise<void>)[] = [];

beforeAll(async () => {
  gateway = await realGateway();
});
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
  gateway.forget();
});
afterAll(() => gateway.close());

/** A client of a server that asks this gateway. */
async function connected(baseURL: string, apiKey = 'none') {
  const corpus = new Corpus(passages('vota').map(({ id, content }) => ({ id, title: undefined, content })));
  const server = await startMcpHttp({ arranger: new Warmpath({ baseURL, apiKey }), corpus, port: 0 });
  open.push(() => server.close());
  const client = new Client({ name: 'test', version: '1.0.0' });
  const transport = new StreamableHTTPClientTransport(new URL(server.url));
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  open.push(() => client.close());
  const call = async (name: string, fields: Record<string, unknown>) => {
    const answer = await client.callTool({ name, arguments: fields });
    return { text: (answer.content as { text: string }[])[0]!.text, isError: answer.isError ?? false };
  };
  return call;
}

it.each(['arrange', 'search'])('a conversation whose documents come from `%s`: none is sent twice', async (name) => {
  const call = await connected(gateway.url, name);
  const found = (letters: string) =>
    name === 'arrange'
      ? call('arrange', { documents: passages(letters) })
      : call('search', {
          query: passages(letters)
            .map(({ id }) => id)
            .join(' '),
          k: letters.length,
        });
  const model = { model: 'warmpath-tiny', max_tokens: 8, temperature: 0, warmpath: { deduplicate: true } };
  const warmpath = new Warmpath({ baseURL: gateway.url, apiKey: name }).session('one');
  const messages: object[] = [{ role: 'system', content: 'Answer from the documents.' }];
  interface Message {
    readonly tool_calls?: readonly { readonly id: string }[];
  }
  const answer = async () => {
    const { body, usage } = await warmpath.chat({ ...model, messages });
    const { message } = (body['choices'] as { readonly message: Message }[])[0]!;
    messages.push(message);
    return { ...message, cachedTokens: usage.cachedTokens };
  };
  const turn = async (question: string, letters: string) => {
    messages.push({ role: 'user', content: question });
    gateway.script(callsTool(name, {}, false));
    const { tool_calls: calls } = await answer();
    messages.push({ role: 'tool', tool_call_id: calls![0]!.id, content: (await found(letters)).text });
    return (await answer()).cachedTokens;
  };
  expect(await turn('What is the weight of Velka?', 'vo')).toBe(0);
  // What the engine had cached of the second turn: all of the first one's documents.
  expect(await turn('What is the weight of Tamir?', 'otv')).toBeGreaterThan(200);
  const [, first, , second] = gateway.prompts();
  expect([...lettersIn(first!)].sort().join('')).toBe('ov');
  expect(second!.messages.slice(0, first!.messages.length)).toEqual(first!.messages);
  expect([...'vot'].map((letter) => timesIn(second!, letter))).toEqual([1, 1, 1]);
  const chats = gateway.asked.filter(({ path }) => path === '/v1/chat/completions');
  expect(await gateway.account(gateway.asked.indexOf(chats[3]!))).toMatchObject({ references: 2 });
  expect(gateway.asked.filter(({ path }) => path === '/v1/arrange')).toHaveLength(2);
});

it('a gateway that is away is named in the answer of the tool', async () => {
  const call = await connected('http://127.0.0.1:1');
  const answer = await call('arrange', { documents: passages('vo') });
  expect(answer).toMatchObject({
    isError: true,
    text: expect.stringMatching(/gateway.*reach|reach.*gateway/i) as string,
  });
});
