import { describe, expect, it } from 'vitest';
import { chatApi, messagesApi } from '../src/apis/prompt-apis.js';
import { type DialectName, dialectOf, keptMsOf } from '../src/dialects/dialects.js';
import { Baselines } from '../src/memory/baselines.js';

const MINUTE_MS = 60_000;

describe('how long a hosted API keeps a prompt', () => {
  it.each<readonly [DialectName, string, object, number | undefined]>([
    ['openai', 'gpt-4.1', {}, 10],
    ['openai', 'gpt-5', {}, 10],
    ['openai', 'gpt-5.5', {}, 10],
    ['openai', 'gpt-5.1', { prompt_cache_retention: '24h' }, 24 * 60],
    ['openai', 'gpt-5.1', { prompt_cache_retention: 'in_memory' }, 10],
    ['openai', 'gpt-5.6', {}, 30],
    ['openai', 'gpt-5.6-mini-2026-07-01', {}, 30],
    ['openai', 'openai/gpt-5.10', {}, 30],
    ['openai', 'gpt-6', {}, 30],
    ['openai', 'gpt-5.6', { prompt_cache_options: { mode: 'explicit', ttl: '30m' } }, 30],
    ['anthropic', 'claude-opus-5', {}, 5],
    ['anthropic', 'claude-opus-5', { cache_control: { type: 'ephemeral' } }, 5],
    ['anthropic', 'claude-opus-5', { cache_control: { type: 'ephemeral', ttl: '1h' } }, 60],
    ['anthropic', 'claude-opus-5', { system: [{ text: 'x', cache_control: { ttl: '1h', type: 'ephemeral' } }] }, 60],
    ['deepseek', 'deepseek-chat', {}, 24 * 60],
    ['vllm', 'gpt-5.6', {}, undefined],
    ['embedded', 'm', { cache_control: { ttl: '1h' } }, undefined],
  ])('%s, %s, %j', (name, model, fields, minutes) => {
    const kept = keptMsOf(dialectOf(name), model, Buffer.from(JSON.stringify({ model, ...fields })));
    expect(kept).toBe(minutes === undefined ? undefined : minutes * MINUTE_MS);
  });
});

describe('what would be cached without the gateway', () => {
  const text = 'The rule stands here. '.repeat(400);
  /** Tokens of a prompt of 3,000 that would be cached so many minutes after the same prompt. */
  function cachedAfter(name: DialectName, body: object, minutes: number): number {
    const engine = { number: 1, dialect: dialectOf(name), capacityTokens: undefined };
    const baselines = new Baselines(1e6);
    const begin = (now: number) =>
      baselines.begin({
        engine,
        api: name === 'anthropic' ? messagesApi : chatApi,
        body: Buffer.from(JSON.stringify(body)),
        tenant: 't',
        isSalted: false,
        turn: undefined,
        turnBefore: undefined,
        now,
      })!;
    const first = begin(0);
    first.prefilled();
    first.ended({ promptTokens: 3_000, answerTokens: undefined });
    return begin(minutes * MINUTE_MS).tokens(3_000);
  }

  const messages = [{ role: 'user', content: text }];
  const claude = { model: 'claude-sonnet-4-5', max_tokens: 9, messages };
  const mark = (fields: object = {}) => ({ cache_control: { type: 'ephemeral', ...fields } });
  it.each<readonly [string, DialectName, object, number, boolean]>([
    ['nothing without a mark', 'anthropic', claude, 1, false],
    ['a prompt that is marked as a whole', 'anthropic', { ...claude, ...mark() }, 4, true],
    ['the same with the mark in front', 'anthropic', { ...mark(), ...claude }, 4, true],
    ['not after its time', 'anthropic', { ...claude, ...mark() }, 6, false],
    ['a prompt that is kept for an hour', 'anthropic', { ...claude, ...mark({ ttl: '1h' }) }, 59, true],
    ['not after the hour', 'anthropic', { ...claude, ...mark({ ttl: '1h' }) }, 61, false],
    ['a prompt of GPT-5', 'openai', { model: 'gpt-5', messages }, 9, true],
    ['not after ten minutes', 'openai', { model: 'gpt-5', messages }, 20, false],
    ['a prompt of GPT-5.6', 'openai', { model: 'gpt-5.6', messages }, 20, true],
    ['not after half an hour', 'openai', { model: 'gpt-5.6', messages }, 31, false],
  ])('is %s', (_, name, body, minutes, isCached) => {
    expect(cachedAfter(name, body, minutes) > 2_000).toBe(isCached);
  });
});
