import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import type { ScoredDocument } from '@warmpath/retrieval';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import { OpenCollections } from '../src/collections/open-collections.js';
import { closing, gatewayAt, type Reply, send } from './harness.js';
import { ScriptedSearch } from './scripted-search.js';

const CHAT = '/v1/chat/completions';

/** Random weights: the text is noise and never ends by itself; tokens, caching and aborts are real. */
let engine: EngineProcess;
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gateway-retrieval-'));
  // One place: whoever has it keeps all others from it.
  engine = await spawnEngine({ port: 0, model: await modelPath('random:1m'), threads: 1, maxRunning: 1 });
});
afterEach(async () => {
  vi.restoreAllMocks();
  await engine.stop();
  await rm(folder, { recursive: true, force: true });
});

async function metric(line: RegExp): Promise<number> {
  const { text } = await send(`${engine.url}/metrics`);
  return Number(line.exec(text)?.[1] ?? 0);
}
const aborted = () => metric(/warmpath_engine_requests_total\{outcome="aborted"[^}]*\} (\d+)/);
const running = () => metric(/vllm:num_requests_running\{[^}]*\} (\d+)/);
const generated = () => metric(/vllm:generation_tokens_total\{[^}]*\} (\d+)/);

interface KvReport {
  readonly paths: readonly { readonly tokens: number; readonly uses: number }[];
}
/** Prompts in the cache that somebody has used, by how often; and how many lie there. */
async function usedPaths() {
  const { paths } = JSON.parse((await send(`${engine.url}/kv?paths=100`)).text) as KvReport;
  return { uses: paths.map(({ uses }) => uses).filter((uses) => uses > 0), paths: paths.length };
}

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}
/** What a stream says: the ids of its answers, its sources, and its usage. */
function read({ text }: Reply) {
  const events = [...text.matchAll(/^data: (\{.*\})$/gm)].map(
    ([, json]) => JSON.parse(json!) as { id: string; usage?: Usage; warmpath?: { sources: readonly { id: string }[] } },
  );
  const sources = events.find(({ warmpath }) => warmpath !== undefined)?.warmpath?.sources;
  return {
    answers: new Set(events.filter(({ id }) => id.startsWith('chatcmpl')).map(({ id }) => id)).size,
    sources: sources?.map(({ id }) => id).join(''),
    usage: events.find(({ usage }) => usage !== undefined && usage !== null)?.usage,
  };
}
const outcome = (reply: Reply) => /speculation=(\w+)/.exec(String(reply.headers['x-warmpath']))?.[1];

/** Every passage has another length, so that prompts are told apart by their tokens. */
const passage = (id: string, place: number): ScoredDocument => {
  const sentences = Array(20 + (id.codePointAt(0)! % 32)).fill(`What is known of ${id} is known to few.`);
  return { id, content: sentences.join(' '), score: 1 / (place + 1) };
};
const question = { messages: [{ role: 'user', content: 'What is known?' }], temperature: 0 };

async function searching() {
  const search = new ScriptedSearch(passage);
  vi.spyOn(OpenCollections.prototype, 'searchable').mockResolvedValue({ name: 'handbook', retriever: search });
  const config = { collections: { folder }, arrange: { hints: false } };
  const gateway = closing(await gatewayAt(engine.url, config, { wastedShare: 1 }));
  const ask = (fields: object) =>
    send(gateway.url + CHAT, {
      ...question,
      stream: true,
      stream_options: { include_usage: true },
      warmpath: { retrieval: { collection: 'handbook', k: 2 } },
      ...fields,
    });
  return { search, ask };
}

/** How many tokens a prompt with these documents has, asked of another salt, so that nothing is left for the others. */
async function promptTokens(ids: string): Promise<number> {
  const gateway = closing(await gatewayAt(engine.url, { arrange: { hints: false } }));
  const documents = [...ids].map(passage).map(({ id, content }) => ({ id, content }));
  const reply = await send(gateway.url + CHAT, { ...question, documents, max_tokens: 1, cache_salt: 'apart' });
  return (JSON.parse(reply.text) as { usage: Usage }).usage.prompt_tokens;
}

describe('generation before a search is over, on the real engine', () => {
  it('that is wrong ends there, makes room for the right one, and is no use of the cache', async () => {
    const tokens = { wrong: await promptTokens('ab'), right: await promptTokens('cd') };
    expect(tokens.wrong).not.toBe(tokens.right);
    const before = await usedPaths();
    const { search, ask } = await searching();
    const max_tokens = 2_000;
    const reply = ask({ max_tokens });
    search.stage('ab');
    while ((await running()) < 1);
    const generatedBefore = await generated();
    search.stage('cd', true);
    while ((await aborted()) < 1);
    const answer = await reply;
    expect([answer.status, answer.broken, outcome(answer)]).toEqual([200, false, 'wrong']);
    const { answers, sources, usage } = read(answer);
    expect([answers, sources]).toEqual([1, 'cd']);
    expect(usage).toMatchObject({ prompt_tokens: tokens.right, completion_tokens: max_tokens });
    expect([await aborted(), await running()]).toEqual([1, 0]);
    // What the wrong one generated was a part of what it might have.
    expect((await generated()) - generatedBefore).toBeLessThan(2 * max_tokens);
    // Both prompts lie in the cache, one of them was of use.
    const after = await usedPaths();
    expect(after.paths - before.paths).toBe(2);
    expect(after.uses.length - before.uses.length).toBe(1);
    expect(Math.max(...after.uses)).toBe(1);
  });

  it('that is right is the answer, and its prompt is computed once', async () => {
    const tokens = await promptTokens('ab');
    const before = await usedPaths();
    const computedBefore = await metric(/vllm:prompt_tokens_total\{[^}]*\} (\d+)/);
    const { search, ask } = await searching();
    const reply = ask({ max_tokens: 50 });
    search.stage('ab');
    while ((await running()) < 1 && (await generated()) < 50);
    search.stage('ba');
    search.stage('ba', true);
    const answer = await reply;
    expect([answer.status, outcome(answer)]).toEqual([200, 'confirmed']);
    const { answers, sources, usage } = read(answer);
    expect([answers, sources]).toEqual([1, 'ba']);
    // Nothing of it was there, and nobody has computed it a second time.
    expect(usage).toMatchObject({ prompt_tokens: tokens, prompt_tokens_details: { cached_tokens: 0 } });
    expect((await metric(/vllm:prompt_tokens_total\{[^}]*\} (\d+)/)) - computedBefore).toBe(tokens);
    expect(await aborted()).toBe(0);
    const after = await usedPaths();
    expect(after.uses.length - before.uses.length).toBe(1);
  });
});

it('questions of one conversation that find some of the same passages share more than the system prompt', async () => {
  const gateway = closing(await gatewayAt(engine.url, { collections: { folder }, arrange: { hints: false } }));
  const subjects = ['harbour', 'orchard', 'quarry', 'bakery', 'foundry'];
  const documents = subjects.map((id) => ({ id, content: Array(12).fill(`The ${id} has a keeper.`).join(' ') }));
  await send(`${gateway.url}/v1/collections/handbook/documents`, { documents });
  const system = { role: 'system', content: 'Answer from the documents, in one sentence, and name the passage.' };
  const ask = async (query: string) => {
    const messages = [system, { role: 'user', content: query }];
    const warmpath = { retrieval: { collection: 'handbook', k: 3 } };
    const reply = await send(gateway.url + CHAT, { messages, max_tokens: 1, warmpath });
    const { usage, warmpath: answered } = JSON.parse(reply.text) as {
      usage: Usage;
      warmpath: { sources: { source: string }[] };
    };
    const found = answered.sources.map(({ source }) => source);
    return { found, cached: usage.prompt_tokens_details.cached_tokens, whole: usage.prompt_tokens };
  };
  const alone = await send(gateway.url + CHAT, { messages: [system, { role: 'user', content: '' }], max_tokens: 1 });
  const systemTokens = (JSON.parse(alone.text) as { usage: Usage }).usage.prompt_tokens;
  const first = await ask('harbour, orchard, quarry');
  expect([...first.found].sort()).toEqual(['harbour', 'orchard', 'quarry']);
  expect(first.cached).toBeLessThanOrEqual(systemTokens);
  // What the model asks for next finds the best of these passages again, behind two others.
  const second = await ask(`bakery bakery foundry foundry ${first.found[0]}`);
  expect(second.found).toHaveLength(3);
  expect(second.found.at(-1)).toBe(first.found[0]);
  const third = await ask(`quarry quarry orchard orchard ${second.found.at(-1)}`);
  // In the order of the search, it would be the system prompt alone.
  for (const { cached, whole } of [second, third]) {
    expect(cached).toBeGreaterThan(systemTokens + (whole - systemTokens) / 4);
  }
});
