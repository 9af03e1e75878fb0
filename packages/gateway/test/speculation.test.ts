import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { startFakeEmbeddings } from '../../retrieval/test/fake-embeddings.js';
import { OpenCollections } from '../src/collections/open-collections.js';
import { type Answer, answerJson } from './fake-engine.js';
import { closing, errorOf, openRequest, type Reply, type StandConfig, send, stand } from './harness.js';
import { ScriptedSearch } from './scripted-search.js';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-gateway-speculation-'));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(folder, { recursive: true, force: true });
});

/** Says which documents the prompt has. */
const documentsOf = (body: string) =>
  [...new Set(body.match(/What is known of (\w)/g))].map((text) => text.at(-1)).sort();
const chunk = (content: string) => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`;
const answering: Answer = (response, { body }) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(`${chunk(documentsOf(body).join(''))}data: [DONE]\n\n`);
};
/** Begins to answer, and goes on for ever. */
const neverDone: Answer = (response, { body }) => {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.write(chunk(documentsOf(body).join('')));
};

/** @param wastedShare As in `GatewayParts`; `null` to leave it to the engine's kind. */
async function here(answer: Answer, config: StandConfig = {}, wastedShare: number | null = 1) {
  const search = new ScriptedSearch();
  vi.spyOn(OpenCollections.prototype, 'searchable').mockResolvedValue({ name: 'handbook', retriever: search });
  const one = await stand(answer, { ...config, collections: { folder } }, wastedShare === null ? {} : { wastedShare });
  const ask = (fields: object = {}, headers: Record<string, string> = {}) =>
    send(
      `${one.gateway.url}/v1/chat/completions`,
      {
        model: 'm',
        stream: true,
        messages: [{ role: 'user', content: 'What is known?' }],
        warmpath: { retrieval: { collection: 'handbook', k: 4 } },
        ...fields,
      },
      { headers },
    );
  return { ...one, search, ask };
}

const saidIn = ({ text }: Reply) =>
  [...text.matchAll(/"delta":\{"content":"(\w*)"\}/g)].map(([, content]) => content).join('|');
const sourcesIn = ({ text }: Reply) => {
  const [, sources] = /"warmpath":(\{"sources":.*\})\}/.exec(text)!;
  return (JSON.parse(sources!) as { sources: { id: string }[] }).sources.map(({ id }) => id).join('');
};
const outcome = ({ headers }: Reply) => /speculation=(\w+)/.exec(String(headers['x-warmpath']))?.[1];

describe('generation before a search is over', () => {
  it('is kept while the candidates stay the same set, and its answer waits for the end of the search', async () => {
    const { engine, search, ask } = await here(answering);
    let isAnswered = false;
    const reply = ask().finally(() => {
      isAnswered = true;
    });
    search.stage('ab');
    await engine.until('request', 1);
    search.stage('ba');
    search.stage('ab');
    await new Promise((resolve) => setImmediate(resolve));
    expect(isAnswered).toBe(false);
    search.stage('ba', true);
    const answer = await reply;
    expect([answer.status, saidIn(answer), outcome(answer), answer.broken]).toEqual([200, 'ab', 'confirmed', false]);
    expect(answer.text.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(engine.received).toHaveLength(1);
    expect(engine.aborted).toBe(0);
  });

  it('ends at the engine when the candidates change, and the client hears of the right one only', async () => {
    let requests = 0;
    const { engine, search, ask } = await here((response, request) =>
      (++requests < 3 ? neverDone : answering)(response, request),
    );
    const reply = ask();
    search.stage('ab');
    await engine.until('request', 1);
    search.stage('ac');
    await engine.until('request', 2);
    search.stage('cd', true);
    const answer = await reply;
    expect([answer.status, saidIn(answer), outcome(answer), sourcesIn(answer)]).toEqual([200, 'cd', 'wrong', 'cd']);
    await engine.until('abort', 2);
    expect(engine.received.map(({ body }) => documentsOf(body).join(''))).toEqual(['ab', 'ac', 'cd']);
  });

  it('is done anew where the engine failed', async () => {
    let requests = 0;
    const { engine, search, ask } = await here((response, request) => {
      if (++requests > 1) answering(response, request);
      else response.writeHead(500, { 'content-type': 'application/json' }).end('{"error":{"message":"no"}}');
    });
    const reply = ask();
    search.stage('ab');
    await engine.until('request', 1);
    // A round trip behind the answer of the engine.
    await fetch(engine.url);
    search.stage('ab', true);
    const answer = await reply;
    expect([answer.status, saidIn(answer), outcome(answer)]).toEqual([200, 'ab', 'wrong']);
  });

  it('ends when the client leaves, and the search with it', async () => {
    const { engine, gateway, search } = await here(neverDone);
    const body = JSON.stringify({
      model: 'm',
      stream: true,
      messages: [{ role: 'user', content: 'What is known?' }],
      warmpath: { retrieval: { collection: 'handbook' } },
    });
    const client = httpRequest(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
    });
    client.on('error', () => {});
    client.end(body);
    search.stage('ab');
    await engine.until('request', 1);
    client.destroy();
    await engine.until('abort', 1);
    expect(await search.left).toMatchObject({ code: 'WARMPATH_CLIENT_CLOSED' });
  });

  it('ends when the search fails, whose error the client gets', async () => {
    const { engine, search, ask } = await here(neverDone);
    const reply = ask();
    search.stage('ab');
    await engine.until('request', 1);
    search.fail(new Error('the disk is gone'));
    const answer = await reply;
    expect(answer.status).toBe(500);
    expect(errorOf(answer).code).toBe('WARMPATH_INTERNAL');
    await engine.until('abort', 1);
  });

  it.each([
    ['a conversation is named', { warmpath: { retrieval: { collection: 'h' }, session: 's' } }, {}, 1],
    ['by the header', {}, { 'x-warmpath-session': 's' }, 1],
    ['the operator wants none of it', {}, {}, 0],
  ])('does not begin where %s', async (_, fields, headers, wastedShare) => {
    const { engine, search, ask } = await here(answering, {}, wastedShare);
    const reply = ask(fields, headers as Record<string, string>);
    search.stage('ab');
    search.stage('cd', true);
    const answer = await reply;
    expect([saidIn(answer), outcome(answer)]).toEqual(['cd', undefined]);
    expect(engine.received).toHaveLength(1);
  });

  it.each([
    ['vllm', 'confirmed'],
    ['generic', undefined],
    ['openai', undefined],
  ] as const)('begins before an engine of the kind %s only where the operator says how much', async (dialect, last) => {
    const one = await here(answering, { upstream: { dialect } }, null);
    let told: string | undefined;
    // What is learned from the first ones lets the next begin.
    for (let time = 0; time < 12; time++) {
      const reply = one.ask();
      one.search.stage('ab');
      one.search.stage('ab', true);
      told = outcome(await reply);
    }
    expect([told, one.engine.received.length]).toEqual([last, 12]);
  });

  it('begins on what words find, while the question is being embedded', async () => {
    const embeddings = closing(await startFakeEmbeddings());
    const settings = { folder, embeddings: { url: embeddings.url, model: 'fake' } };
    const { engine, gateway } = await stand(answering, { collections: settings }, { wastedShare: 1 });
    const documents = [...'abc'].map((id) => ({ id, content: `What is known of ${id}.` }));
    await send(`${gateway.url}/v1/collections/handbook/documents`, { documents });
    embeddings.answer = async () => {
      await engine.until('request', 1);
      return undefined;
    };
    const reply = await send(`${gateway.url}/v1/chat/completions`, {
      model: 'm',
      stream: true,
      messages: [{ role: 'user', content: 'What is known of a?' }],
      warmpath: { retrieval: { collection: 'handbook', k: 3 } },
    });
    expect([reply.status, saidIn(reply), outcome(reply)]).toEqual([200, 'abc', 'confirmed']);
    expect(engine.received).toHaveLength(1);
  });

  it('holds a bounded part of a long answer, and loses nothing of it', async () => {
    const parts = Array.from({ length: 64 }, () => chunk(randomBytes(20_000).toString('hex')));
    const { engine, search, ask } = await here((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      for (const part of parts) response.write(part);
      response.end('data: [DONE]\n\n');
    });
    const reply = ask();
    search.stage('ab');
    await engine.until('request', 1);
    search.stage('ab', true);
    const { text, broken } = await reply;
    expect(broken).toBe(false);
    expect(text.startsWith(parts.join(''))).toBe(true);
    expect(text.endsWith('data: [DONE]\n\n')).toBe(true);
  });

  it('never answers from other documents than those of the final stage, whatever comes on the way', async () => {
    const ids = fc
      .uniqueArray(fc.constantFrom('a', 'b', 'c'), { minLength: 1, maxLength: 2 })
      .map((list) => list.join(''));
    const kinds = ['answers', 'stays', 'fails', 'cuts'] as const;
    const stages = fc.array(fc.record({ ids, kind: fc.constantFrom(...kinds) }), { minLength: 1, maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(stages, ids, fc.boolean(), async (early, last, stream) => {
        let requests = 0;
        let isLast = false;
        const { engine, gateway, search, ask } = await here((response, request) => {
          const kind = isLast ? 'answers' : early[requests++ % early.length]!.kind;
          if (kind === 'fails') response.writeHead(503).end();
          else if (kind === 'cuts') response.writeHead(200, { 'content-type': 'text/event-stream' }).destroy();
          else if (kind === 'stays' && documentsOf(request.body).join('') !== [...last].sort().join(''))
            neverDone(response, request);
          else answering(response, request);
        });
        const reply = ask({ stream });
        for (const { ids } of early) {
          search.stage(ids);
          await new Promise((resolve) => setImmediate(resolve));
        }
        isLast = true;
        search.stage(last, true);
        const answer = await reply;
        if (answer.status === 200 && !answer.broken) expect(saidIn(answer)).toBe([...last].sort().join(''));
        else expect(engine.received.length).toBeGreaterThan(0);
        await gateway.close();
        await engine.close();
      }),
      { numRuns: 40, seed: 7 },
    );
  });
});

describe('a cold system prompt while a search goes on', () => {
  const SYSTEM = { role: 'system', content: `Answer from the documents. ${'Be brief and exact. '.repeat(30)}` };
  const messages = [SYSTEM, { role: 'user', content: 'What is known?' }];
  const isWarmup = ({ body }: { body: string }) => (JSON.parse(body) as { max_tokens?: number }).max_tokens === 1;
  const upstream = { dialect: 'vllm' } as const;
  const counted = async (url: string, event: string) => {
    const { text } = await send(`${url}/metrics`);
    return Number(new RegExp(`warmpath_search_warmups_total\\{event="${event}"\\} (\\d+)`).exec(text)?.[1] ?? 0);
  };
  const warmOrAnswer: Answer = (response, request) =>
    isWarmup(request) ? answerJson(response) : answering(response, request);

  it('is warmed once', async () => {
    const { engine, gateway, search, ask } = await here(warmOrAnswer, { upstream }, 0);
    const reply = ask({ messages });
    await engine.until('request', 1);
    expect(isWarmup(engine.last)).toBe(true);
    expect(JSON.parse(engine.last.body)).toMatchObject({ messages: [SYSTEM, { role: 'user', content: '' }] });
    expect(engine.last.body).not.toMatch(/warmpath|documents"/);
    while (!(await send(`${gateway.url}/metrics`)).text.includes('warmpath_warm_prefixes 1\n'));
    search.stage('ab', true);
    expect(saidIn(await reply)).toBe('ab');
    const again = ask({ messages });
    // Longer than anything waits before it warms.
    await new Promise((resolve) => setTimeout(resolve, 50));
    search.stage('ab', true);
    expect(saidIn(await again)).toBe('ab');
    expect(engine.received.map(isWarmup)).toEqual([true, false, false]);
    expect([await counted(gateway.url, 'started'), await counted(gateway.url, 'stopped')]).toEqual([1, 0]);
  });

  it('is left to the prompt itself once that goes out', async () => {
    const { engine, gateway, search, ask } = await here(
      (response, request) => (isWarmup(request) ? neverDone(response, request) : answering(response, request)),
      { upstream },
      0,
    );
    const reply = ask({ messages });
    await engine.until('request', 1);
    search.stage('ab', true);
    expect(saidIn(await reply)).toBe('ab');
    await engine.until('abort', 1);
    expect([await counted(gateway.url, 'started'), await counted(gateway.url, 'stopped')]).toEqual([1, 1]);
  });

  it.each([
    ['is short', { messages: [{ role: 'user', content: 'What is known?' }] }, upstream],
    ['engine is not one that keeps prefixes', { messages }, { dialect: 'openai' }],
    ['kind of the engine is not known', { messages }, { dialect: 'generic' }],
  ] satisfies [string, object, NonNullable<StandConfig['upstream']>][])(
    'is not warmed where the %s',
    async (_, fields, upstream) => {
      const { engine, search, ask } = await here(warmOrAnswer, { upstream }, 0);
      const reply = ask(fields);
      await new Promise((resolve) => setTimeout(resolve, 50));
      search.stage('ab', true);
      expect(saidIn(await reply)).toBe('ab');
      expect(engine.received).toHaveLength(1);
    },
  );

  it('is not warmed while the engine computes other prompts', async () => {
    const { engine, gateway, search, ask } = await here(neverDone, { upstream }, 0);
    let isBusy = false;
    engine.answer = (response, request) => {
      if (!isBusy) response.flushHeaders();
      else warmOrAnswer(response, request);
      isBusy = true;
    };
    const other = openRequest(`${gateway.url}/v1/chat/completions`, {
      model: 'm',
      messages: [{ role: 'user', content: 'x' }],
    });
    other.on('error', () => {});
    await engine.until('request', 1);
    const reply = ask({ messages });
    await new Promise((resolve) => setTimeout(resolve, 50));
    search.stage('ab', true);
    expect(saidIn(await reply)).toBe('ab');
    expect(engine.received.map(isWarmup)).toEqual([false, false]);
    other.destroy();
  });
});
