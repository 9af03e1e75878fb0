import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SessionList } from '@warmpath/dashboard';
import { type EngineProcess, spawnEngine } from '@warmpath/engine';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isFull } from '../../../test/suite.js';
import { modelPath } from '../../engine/bench/random-model/src/model-path.js';
import type { Report } from '../src/shapes/shapes.js';
import { startGateway } from '../src/start-gateway.js';
import { closing, send } from './harness.js';

interface Message {
  readonly role: string;
  readonly content: string | null;
}
interface Prompt {
  readonly model: string;
  readonly tools: readonly { readonly function: { readonly description: string } }[];
  readonly messages: readonly Message[];
}

/** Two turns of OpenCode, as it sent them; its own texts are replaced. */
const SESSION = JSON.parse(readFileSync(join(import.meta.dirname, 'fixtures/opencode-session.json'), 'utf8')) as Prompt;

/** What the agent sent: all messages up to each answer, and all. */
const LENGTHS = [
  ...SESSION.messages.flatMap(({ role }, place) => (role === 'assistant' ? [place] : [])),
  SESSION.messages.length,
];

type Change = (prompt: Prompt) => Prompt;
const withMessages =
  (change: (messages: readonly Message[]) => readonly Message[]): Change =>
  (prompt) => {
    return { ...prompt, messages: change(prompt.messages) };
  };
const SUMMARY = { role: 'user', content: `The session so far: ${'sum.js was read and mended. '.repeat(20)}` };

/** Changes of all prompts from one on; each has the name of its cause. */
const CHANGES = {
  'system-prompt': withMessages(([system, ...rest]) => [
    { ...system!, content: system!.content!.replace('Rule 3 of', 'Law 3 of') },
    ...rest,
  ]),
  'tools-changed': (prompt) => ({
    ...prompt,
    tools: prompt.tools.map((tool, place) =>
      place === 2 ? { ...tool, function: { ...tool.function, description: 'Another tool.' } } : tool,
    ),
  }),
  'tools-order': (prompt) => ({ ...prompt, tools: prompt.tools.toReversed() }),
  'history-changed': withMessages((messages) =>
    messages.map((message, place) => (place === 2 ? { ...message, content: 'Step one.' } : message)),
  ),
  'history-cut': withMessages(([system, question, ...rest]) => [system!, question!, ...rest.slice(2)]),
  'history-compacted': withMessages((messages) => [messages[0]!, SUMMARY, ...messages.slice(5)]),
} satisfies Record<string, Change>;

type Cause = keyof typeof CHANGES | 'evicted' | 'other-engine';

/** Five breaks a session, before every second prompt. */
const BREAKS: readonly (readonly Cause[])[] = [
  ['system-prompt', 'evicted', 'tools-order', 'history-changed', 'other-engine'],
  ['tools-changed', 'other-engine', 'history-compacted', 'evicted', 'system-prompt'],
  ['history-changed', 'tools-order', 'other-engine', 'history-cut', 'evicted'],
  ['evicted', 'history-cut', 'tools-changed', 'system-prompt', 'tools-order'],
];

/** `npm test` has the first of them. */
const SERVED = isFull ? BREAKS : BREAKS.slice(0, 1);

let folder: string;
let engines: EngineProcess[];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-'));
  const model = await modelPath('random:1m');
  engines = await Promise.all([0, 1].map(() => spawnEngine({ port: 0, model, threads: 1 })));
});

afterAll(async () => {
  for (const engine of engines) await engine.stop();
  await rm(folder, { recursive: true });
});

/** Tells the gateway that an engine gets no new prompts, or gets them again. */
function tell(socketPath: string, path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = httpRequest({ socketPath, method: 'POST', path }, (response) => {
      response.resume().on('end', () => resolve(response.statusCode!));
    });
    request.on('error', reject).end();
  });
}

async function countedByEngines(name: string): Promise<number> {
  let sum = 0;
  for (const { url } of engines) {
    const { text } = await send(`${url}/metrics`);
    for (const [, value] of text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'gm'))) sum += Number(value);
  }
  return sum;
}

it('of 20 breaks of 8 causes in sessions of an agent, all are found, and the tokens are those that the engines count', async () => {
  expect(new Set(BREAKS.flat()).size).toBe(8);
  expect(BREAKS.flat()).toHaveLength(20);
  expect(LENGTHS).toHaveLength(11);
  const socket = join(folder, 'admin.sock');
  const reports: Report[] = [];
  const gateway = closing(
    await startGateway(
      {
        server: { port: 0 },
        log: { level: 'silent' },
        upstream: { dialect: 'embedded' },
        engines: engines.map(({ url }, place) => ({ name: 'ab'[place]!, url })),
        admin: { socket },
        // Else the gateway keeps the order.
        unchanged: ['tool-order'],
        prices: [{ input: 2, cached: 0.5 }],
      },
      { onRequest: (report) => void (report.tenant !== undefined && reports.push(report)) },
    ),
  );
  const [promptBefore, cachedBefore] = [
    await countedByEngines('vllm:prompt_tokens_total'),
    await countedByEngines('vllm:prompt_tokens_cached_total'),
  ];
  const ask = async (prompt: Prompt, session: string): Promise<Report> => {
    const headers = { 'x-session-id': session, 'x-session-affinity': session };
    const body = { ...prompt, model: undefined, max_tokens: 1, temperature: 0 };
    const reply = await send(`${gateway.url}/v1/chat/completions`, body, { headers });
    expect(reply.status, reply.text).toBe(200);
    const id = reply.headers['x-request-id'];
    while (reports.at(-1)?.requestId !== id) await new Promise((resolve) => setImmediate(resolve));
    return reports.at(-1)!;
  };

  const found: (string | undefined)[] = [];
  const injected: (string | undefined)[] = [];
  let lostTokens = 0;
  for (const [number, causes] of SERVED.entries()) {
    for (const { url } of engines) await send(`${url}/kv/flush`, {});
    const changes: Change[] = [];
    let last: Report | undefined;
    for (const [place, length] of LENGTHS.entries()) {
      const cause = place % 2 === 0 ? causes[place / 2 - 1] : undefined;
      if (cause === 'evicted') for (const { url } of engines) await send(`${url}/kv/flush`, {});
      const drained = cause === 'other-engine' ? last!.engine!.name : undefined;
      if (drained !== undefined) expect(await tell(socket, `/engines/${drained}/drain`)).toBe(200);
      else if (cause !== undefined && cause !== 'evicted' && cause !== 'other-engine') changes.push(CHANGES[cause]);
      const prompt = changes.reduce<Prompt>((changed, change) => change(changed), {
        ...SESSION,
        messages: SESSION.messages.slice(0, length),
      });
      const report = await ask(prompt, `ses_${number}`);
      if (drained !== undefined) expect(await tell(socket, `/engines/${drained}/resume`)).toBe(200);
      injected.push(cause);
      found.push(report.sessionBreak?.cause);
      lostTokens += report.sessionBreak?.lostTokens ?? 0;
      const computed = report.promptTokens! - report.cachedTokens!;
      expect(report.sessionBreak?.lostTokens ?? 0).toBeLessThanOrEqual(Math.min(computed, last?.promptTokens ?? 0));
      // What the session had before is all that such a break loses.
      if (cause === 'evicted' || cause === 'other-engine') {
        expect(report.sessionBreak!.lostTokens).toBe(last!.promptTokens! - report.cachedTokens!);
      }
      last = report;
    }
  }
  expect(found).toEqual(injected);

  const list = await send(`${gateway.url}/v1/sessions`);
  const { data } = JSON.parse(list.text) as SessionList;
  const sum = (name: 'promptTokens' | 'cachedTokens' | 'computedTokens' | 'lostTokens' | 'breaks') =>
    data.reduce((total, { sums }) => total + sums[name], 0);
  expect(data).toHaveLength(SERVED.length);
  expect(sum('breaks')).toBe(SERVED.flat().length);
  expect(sum('lostTokens')).toBe(lostTokens);
  const promptTokens = (await countedByEngines('vllm:prompt_tokens_total')) - promptBefore;
  const cachedTokens = (await countedByEngines('vllm:prompt_tokens_cached_total')) - cachedBefore;
  expect([sum('promptTokens'), sum('cachedTokens')]).toEqual([promptTokens, cachedTokens]);
  expect(sum('computedTokens')).toBe(promptTokens - cachedTokens);
  for (const { sums } of data) {
    expect(sums.cost).toBeCloseTo((2 * sums.computedTokens + 0.5 * sums.cachedTokens) / 1e6, 12);
    expect(sums.lostCost).toBeCloseTo((1.5 * sums.lostTokens) / 1e6, 12);
  }
});
