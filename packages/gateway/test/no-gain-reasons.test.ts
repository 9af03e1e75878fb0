import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { allowPrompts } from '../../../test/real-gateway.js';
import { NO_GAIN_REASONS, type Report } from '../src/shapes/shapes.js';
import { metricOf, type StandConfig, send, stand, told } from './harness.js';
import { learnedKinds, numbered, passagesOf, questionFirst, questionLast, type WritePrompt } from './learned-kinds.js';

const CHAT = '/v1/chat/completions';
const VLLM = { upstream: { dialect: 'vllm' } } as const satisfies StandConfig;
/** More prompts than were learned. */
const NEXT = 1_000;

/** A question that comes before the message with the documents, in other words each time. */
const questionBefore: WritePrompt = (passages, number) => [
  { role: 'user', text: `${number.toString(36).repeat(3)} ${(number * 7_919).toString(36)}?` },
  { role: 'user', text: `Use the following context:\n\n${passages.join('\n\n')}\n\nAnswer briefly.` },
];

/** An engine that counts 500 tokens, and of these so many as cached. */
function counted(cachedTokens: number | undefined, promptTokens = 500) {
  return (response: ServerResponse): void => {
    const details = cachedTokens === undefined ? null : { cached_tokens: cachedTokens };
    const usage = { prompt_tokens: promptTokens, completion_tokens: 1, prompt_tokens_details: details };
    const message = { role: 'assistant', content: 'Yes.' };
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: 'stop' }], usage }));
  };
}

async function standing(write: WritePrompt, config: StandConfig = VLLM, answer = counted(0)) {
  const reports: Report[] = [];
  const parts = {
    promptKinds: learnedKinds(['anonymous', write]),
    onRequest: (report: Report) => void (report.tenant !== undefined && reports.push(report)),
  };
  const { gateway } = await stand(answer, config, parts);
  const list = async () =>
    (JSON.parse((await send(`${gateway.url}/v1/prompts`)).text) as { data: readonly Kind[] }).data;
  const decide = async (choice: object) => {
    const [kind] = await list();
    expect((await send(`${gateway.url}/v1/prompts/${kind!.id}`, choice)).status).toBe(200);
  };
  const ask = async (texts: readonly { readonly role: string; readonly text: string }[], fields: object = {}) => {
    const before = reports.length;
    const messages = texts.map(({ role, text }) => ({ role, content: text }));
    const reply = await send(gateway.url + CHAT, { model: 'm', messages, ...fields });
    expect(reply.status, reply.text).toBe(200);
    while (reports.length === before) await new Promise((resolve) => setImmediate(resolve));
    return { reply, report: reports.at(-1)! };
  };
  return { gateway, list, decide, ask, next: (fields?: object) => ask(write(passagesOf(NEXT), NEXT), fields) };
}

interface Kind {
  readonly id: string;
  readonly notices: readonly { readonly name: string; readonly preventsGain: boolean; readonly message: string }[];
}

describe('the reason why a prompt of a known kind gains nothing', () => {
  it('is that nobody has allowed the kind, or that it was refused', async () => {
    const { ask, decide, gateway, next } = await standing(questionLast);
    const { reply, report } = await next();
    expect(report).toMatchObject({ noGain: 'kind-not-allowed', isUnchanged: true });
    const record = await send(`${gateway.url}/v1/requests/${reply.headers['x-request-id']}`);
    expect(JSON.parse(record.text)).toMatchObject({ noGain: 'kind-not-allowed' });
    expect(await metricOf(gateway, 'warmpath_no_gain_total{reason="kind-not-allowed"}')).toBe(1);
    await decide({ state: 'refused' });
    expect((await next()).report.noGain).toBe('kind-refused');
    expect(
      (await ask([{ role: 'user', text: 'Of no known kind, and long enough for a block or two of a cache.' }])).report,
    ).toMatchObject({ noGain: 'no-documents' });
  });

  it('is told although the engine counts nothing', async () => {
    const { next } = await standing(questionLast, VLLM, (response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end('{"choices":[]}');
    });
    expect((await next()).report).toMatchObject({ noGain: 'kind-not-allowed', gainTokens: undefined });
  });

  it('is gone once the kind is allowed: then the order decides', async () => {
    const { gateway, next } = await standing(questionLast);
    await allowPrompts(gateway.url, 1);
    const { report } = await next();
    expect(report.recognised).toBeGreaterThan(1);
    expect(report.noGain).toBe('no-better-order');
  });

  const PREVENTING: readonly [reason: keyof typeof NO_GAIN_REASONS, write: WritePrompt][] = [
    ['question-first', questionBefore],
    ['changing-text-first', questionFirst],
    ['labels-by-position', numbered],
  ];

  it.each(PREVENTING)('is %s, allowed or not, in the words of the list of kinds', async (reason, write) => {
    const { decide, list, next } = await standing(write);
    expect((await next()).report.noGain).toBe(reason);
    await decide({ state: 'allowed', labels: 'kept' });
    expect((await next()).report.noGain).toBe(reason);
    const [{ notices }] = (await list()) as [Kind];
    const notice = notices.find(({ name }) => name === reason);
    expect(notice?.preventsGain).toBe(true);
    expect(notice?.message.startsWith(NO_GAIN_REASONS[reason])).toBe(true);
  });

  it('is not labels by position where they are mapped', async () => {
    const { decide, next } = await standing(numbered);
    await decide({ state: 'allowed', labels: 'mapped' });
    const { reply, report } = await next();
    expect(told(reply)['labels']).toBe('mapped');
    expect(report.noGain).toBe('no-better-order');
  });

  it('names the words of the program behind which the changing text stands', async () => {
    const { list } = await standing(questionFirst);
    const [{ notices }] = (await list()) as [Kind];
    const notice = notices.find(({ name }) => name === 'changing-text-first');
    expect(notice?.message).toMatch(/It stands behind "Question:"\.$/);
  });

  it('is the reason for which `auto` does not allow the kind by itself', async () => {
    const ordered: WritePrompt = (passages, number) => [
      {
        role: 'user',
        text: `The best passage comes first.\n\n${passages.join('\n\n')}\n\nQuestion: Who keeps ${number}?`,
      },
    ];
    const { next } = await standing(ordered, { ...VLLM, recognise: 'auto' });
    expect((await next()).report.noGain).toBe('program-text');
  });

  it('is that there are fewer than two documents to move', async () => {
    const { ask, decide } = await standing(questionLast);
    await decide({ state: 'allowed' });
    const { report } = await ask(questionLast(['Only this passage, which nobody has seen before.'], NEXT));
    expect(report.noGain).toBe('few-documents');
  });

  it('is that the configuration looks for none', async () => {
    const { next } = await standing(questionLast, { ...VLLM, recognise: 'off' });
    expect((await next()).report.noGain).toBe('recognise-off');
  });

  it('is the length, below the least that the engine caches', async () => {
    const { next } = await standing(questionLast, { upstream: { dialect: 'openai' } }, counted(0, 900));
    expect((await next()).report.noGain).toBe('too-short');
  });

  it.each([['holdout'], ['bypass']])('is %s before all others', async (reason) => {
    const { next } = await standing(questionLast, reason === 'holdout' ? { ...VLLM, holdout: 0.5 } : VLLM);
    const asked = Array.from({ length: 20 }, (_, i) => ({ user: `u${i}` }));
    const reports: Report[] = [];
    for (const fields of asked) {
      reports.push((await next(reason === 'bypass' ? { ...fields, warmpath: { bypass: true } } : fields)).report);
    }
    const expected = reports.filter(({ isHeldOut }) => isHeldOut || reason === 'bypass');
    expect(expected.every(({ noGain }) => noGain === reason)).toBe(true);
  });
});
