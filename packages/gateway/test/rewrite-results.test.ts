import { describe, expect, it } from 'vitest';
import { answerJson } from './fake-engine.js';
import { type StandConfig, send, stand } from './harness.js';

const FILE = 'The weight of Velka is 42 kg.\n'.repeat(60);
const OTHER = FILE.replace('42', '43');
const SAME = '[The same as the result of call call_1 above.]';

const PRICED: StandConfig = {
  upstream: { dialect: 'sglang' },
  prices: [{ models: ['m'], input: 3, cached: 0.3, rewriteResults: true }],
};

/** One read in a history: which tool, with which input, and what it gave. */
interface Read {
  readonly name: string;
  readonly input: object;
  readonly text: string;
  readonly failed?: boolean;
}

const read = (text: string, path = 'notes.txt'): Read => ({ name: 'Read', input: { file_path: path }, text });

/** A history of reads in the words of an API. */
const APIS: Readonly<Record<string, (reads: readonly Read[], words?: string) => object>> = {
  'chat/completions': (reads, words = 'Go.') => ({
    messages: [
      { role: 'user', content: words },
      ...reads.flatMap(({ name, input, text }, at) => [
        {
          role: 'assistant',
          tool_calls: [
            { id: `call_${at + 1}`, type: 'function', function: { name, arguments: JSON.stringify(input) } },
          ],
        },
        { role: 'tool', tool_call_id: `call_${at + 1}`, content: text },
      ]),
    ],
  }),
  messages: (reads, words = 'Go.') => ({
    max_tokens: 8,
    messages: [
      { role: 'user', content: words },
      ...reads.flatMap(({ name, input, text, failed }, at) => [
        { role: 'assistant', content: [{ type: 'tool_use', id: `call_${at + 1}`, name, input }] },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: `call_${at + 1}`,
              content: [{ type: 'text', text }],
              is_error: failed,
            },
          ],
        },
      ]),
    ],
  }),
  responses: (reads, words = 'Go.') => ({
    input: [
      { role: 'user', content: words },
      ...reads.flatMap(({ name, input, text }, at) => [
        { type: 'function_call', call_id: `call_${at + 1}`, name, arguments: JSON.stringify(input) },
        { type: 'function_call_output', call_id: `call_${at + 1}`, output: text },
      ]),
    ],
  }),
};

/** The texts of results in a body, whatever its API. */
function resultsIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  const { role, type, content, output } = value as Readonly<Record<string, unknown>>;
  if (role === 'tool') return [content as string];
  if (type === 'function_call_output') return [output as string];
  if (type === 'tool_result') {
    return [typeof content === 'string' ? content : (content as readonly { readonly text: string }[])[0]!.text];
  }
  return Object.values(value).flatMap(resultsIn);
}

async function session(api = 'messages', config: StandConfig = PRICED) {
  const { engine, gateway } = await stand(answerJson, config, { apiRoute: 'native' });
  /** The results that the engine gets. */
  const ask = async (
    reads: readonly Read[],
    { words, ...more }: { readonly words?: string; readonly [key: string]: unknown } = {},
  ) => {
    const answer = await send(`${gateway.url}/v1/${api}`, { model: 'm', ...APIS[api]!(reads, words), ...more });
    expect(answer.status).toBe(200);
    return resultsIn(JSON.parse(engine.last.body));
  };
  return { engine, gateway, ask };
}

describe('results of tools that a price allows to shorten', () => {
  it.each(Object.keys(APIS))('a repeated read of %s becomes a note, and stays one', async (api) => {
    const { gateway, ask } = await session(api);
    const reads = [read(FILE), read(FILE, 'copy.txt'), read('short'), read('short')];
    for (let turn = 0; turn <= reads.length; turn++) {
      expect(await ask(reads.slice(0, turn))).toEqual([FILE, SAME, 'short', 'short'].slice(0, turn));
    }
    const { text } = await send(`${gateway.url}/metrics`, undefined, { method: 'GET' });
    const spared = Number(/^warmpath_deduplicated_tokens_total (\d+)/m.exec(text)?.[1]);
    expect(spared).toBeGreaterThan(1_000);
  });

  it('a read that was sent in full stays in full; where history changed before it, it is left out', async () => {
    const { ask } = await session();
    await ask([read('first', 'a')]);
    await ask([read('first', 'a'), read(FILE)]);
    expect(await ask([read('first', 'a'), read(FILE), read(OTHER)])).toEqual(['first', FILE, OTHER]);
    const left = '[Left out: call call_3 read this again later. Call the tool again for the present content.]';
    const changed = [read('first', 'b'), read(FILE), read(OTHER)];
    expect(await ask(changed)).toEqual(['first', FILE, OTHER]);
    // A conversation that starts elsewhere may be cached as it is; this one has its first turn from here.
    await ask([read('first', 'c')]);
    expect(await ask([read('first', 'c'), read(FILE), read(OTHER)])).toEqual(['first', left, OTHER]);
    // Without the later read, the note stays: the prefix is cached with it.
    expect(await ask([read('first', 'c'), read(FILE)])).toEqual(['first', left]);
  });

  it('the same history in other words keeps what was sent', async () => {
    const { ask } = await session();
    const reads = [read(FILE), read(FILE), read('more')];
    await ask(reads.slice(0, 1));
    await ask(reads.slice(0, 2));
    const system = [{ type: 'text', text: 'Changed.', cache_control: { type: 'ephemeral' } }];
    expect(await ask(reads, { system })).toEqual([FILE, SAME, 'more']);
  });

  it.each<[string, StandConfig, Readonly<Record<string, unknown>>?]>([
    ['no price asks for it', { ...PRICED, prices: [{ input: 3, cached: 0.3 }] }],
    [
      'the price is of another model',
      { ...PRICED, prices: [{ models: ['n'], input: 3, cached: 0.3, rewriteResults: true }] },
    ],
    ['cached tokens are free', { ...PRICED, prices: [{ input: 3, cached: 0, rewriteResults: true }] }],
    ['the engine caches from more tokens on', { ...PRICED, upstream: { dialect: 'anthropic' } }],
    ['the request wants nothing changed', PRICED, { warmpath: { bypass: true } }],
    ['the conversation is held out', { ...PRICED, holdout: 0.5 }, { words: 'b' }],
  ])('nothing changes where %s', async (_, config, more) => {
    const { engine, ask } = await session('messages', config);
    const reads = [read(FILE), read(FILE)];
    for (let turn = 0; turn <= 2; turn++)
      expect(await ask(reads.slice(0, turn), more)).toEqual([FILE, FILE].slice(0, turn));
    expect(engine.last.body).not.toContain('The same as');
  });

  it.each<[string, readonly Read[]]>([
    [
      'a call that does more than read',
      [
        { name: 'Bash', input: { command: 'npm test' }, text: FILE },
        { name: 'Bash', input: { command: 'npm test' }, text: OTHER },
      ],
    ],
    [
      'a command with a pipe',
      [
        { name: 'Bash', input: { command: 'cat /a | sh' }, text: FILE },
        { name: 'Bash', input: { command: 'cat /a | sh' }, text: OTHER },
      ],
    ],
    [
      'a read of another part',
      [
        { name: 'Read', input: { file_path: 'a', offset: 1 }, text: FILE },
        { name: 'Read', input: { file_path: 'a' }, text: OTHER },
      ],
    ],
    ['a later read that failed', [read(FILE), { ...read(OTHER), failed: true }]],
  ])('%s leaves nothing out', async (_, reads) => {
    const { ask } = await session();
    await ask([read('first', 'a')]);
    expect(await ask([read('first', 'a'), ...reads])).toEqual(['first', FILE, OTHER]);
  });

  it('a command that reads counts as a read, whatever the order of its arguments', async () => {
    const { ask } = await session();
    await ask([read('first', 'a')]);
    const cat = (text: string, more = {}) => ({
      name: 'exec_command',
      input: { cmd: 'cat /notes.txt', ...more },
      text,
    });
    expect((await ask([read('first', 'a'), cat(FILE), cat(OTHER, { yield_ms: 5 })]))[1]).toContain('[Left out');
  });
});
