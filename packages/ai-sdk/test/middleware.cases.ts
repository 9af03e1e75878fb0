import { LocalWarmpath } from '@warmpath/client';
import type { ModelMessage } from 'ai';
import { describe, expect, it } from 'vitest';
import type { RerankingOptions } from '../src/index.js';

/** What a test asks of a model, in either version. */
interface Ask {
  readonly system?: string;
  readonly messages: ModelMessage[];
  readonly documents?: readonly object[];
  readonly session?: string;
}

/** What the model in place of a provider does. */
export interface Model {
  readonly cachedTokens?: number;
  /** The middleware's. */
  readonly onForgotten?: (session: string) => void;
  readonly fails?: 'at once' | 'before content' | 'after content';
  /** Prompts and provider options as they reached it. */
  readonly received: { prompt: { role: string; content: unknown }[]; providerOptions: unknown }[];
}

/** One major version of the SDK, with the real functions a user calls. */
export interface Version {
  readonly name: string;
  generate(warmpath: LocalWarmpath, model: Model, ask: Ask): Promise<string>;
  /** Reads at most `pieces` pieces of text. */
  stream(warmpath: LocalWarmpath, model: Model, ask: Ask & { readonly pieces?: number }): Promise<string>;
  rerank(
    warmpath: LocalWarmpath,
    documents: string[],
    options?: RerankingOptions & { readonly topN?: number },
  ): Promise<number[]>;
}

const usage = ({ cachedTokens = 0 }: Model) => ({
  inputTokens: { total: 400, noCache: 400 - cachedTokens, cacheRead: cachedTokens, cacheWrite: undefined },
  outputTokens: { total: 2, text: 2, reasoning: undefined },
});
const finishReason = { unified: 'stop', raw: 'stop' } as const;

function answer(model: Model, params: { prompt: unknown; providerOptions?: unknown }) {
  model.received.push({
    prompt: params.prompt as Model['received'][0]['prompt'],
    providerOptions: params.providerOptions,
  });
  if (model.fails === 'at once') throw new Error('The engine is gone.');
  return { content: [{ type: 'text' as const, text: 'Two words' }], finishReason, usage: usage(model), warnings: [] };
}

function answerStream(model: Model, params: { prompt: unknown; providerOptions?: unknown }) {
  answer(model, params);
  const gone = new Error('The engine is gone.');
  const parts = [
    { type: 'stream-start' as const, warnings: [] },
    ...(model.fails === 'before content' ? [gone] : []),
    { type: 'text-start' as const, id: '0' },
    { type: 'text-delta' as const, id: '0', delta: 'Two ' },
    ...(model.fails === 'after content' ? [gone] : []),
    { type: 'text-delta' as const, id: '0', delta: 'words' },
    { type: 'text-end' as const, id: '0' },
    { type: 'finish' as const, finishReason, usage: usage(model) },
  ];
  let next = 0;
  const stream = new ReadableStream({
    pull(controller) {
      const part = parts[next++];
      if (part === undefined) controller.close();
      else if (part instanceof Error) controller.error(part);
      else controller.enqueue(part);
    },
  });
  return { stream };
}

/** Provider options are JSON, and so are documents. */
function options({ documents, session }: Ask): Record<string, Record<string, boolean>> {
  const warmpath = { documents, session };
  return JSON.parse(JSON.stringify({ other: { kept: true }, warmpath })) as Record<string, Record<string, boolean>>;
}

async function read(texts: AsyncIterable<string>, pieces = Number.POSITIVE_INFINITY): Promise<string> {
  let text = '';
  for await (const piece of texts) {
    text += piece;
    if (--pieces === 0) break;
  }
  return text;
}

export const rethrow = ({ error }: { error: unknown }) => {
  throw error;
};

type Params = { readonly prompt: unknown; readonly providerOptions?: unknown };

/** What a call says beside its model, in the same words in both versions. */
export interface Call {
  readonly system: string;
  readonly messages: Ask['messages'];
  readonly maxRetries: number;
  readonly providerOptions: ReturnType<typeof options>;
}

interface RerankCall {
  readonly documents: string[];
  readonly query: string;
  readonly topN?: number;
}

/** What the versions call differently, each with its own types. */
export interface Sdk {
  generate(warmpath: LocalWarmpath, model: Model, call: Call): PromiseLike<{ readonly text: string }>;
  stream(warmpath: LocalWarmpath, model: Model, call: Call): { readonly textStream: AsyncIterable<string> };
  rerank(
    warmpath: LocalWarmpath,
    options: RerankingOptions,
    call: RerankCall,
  ): PromiseLike<{ readonly ranking: readonly { readonly originalIndex: number }[] }>;
}

/** A model of either version, which answers as it is told. */
export const answers = (model: Model) => ({
  doGenerate: async (params: Params) => answer(model, params),
  doStream: async (params: Params) => answerStream(model, params),
});

export function version(name: string, sdk: Sdk): Version {
  const callOf = (ask: Ask): Call => ({
    system: ask.system!,
    messages: ask.messages,
    maxRetries: 0,
    providerOptions: options(ask),
  });
  return {
    name,
    generate: async (warmpath, model, ask) => (await sdk.generate(warmpath, model, callOf(ask))).text,
    stream: async (warmpath, model, ask) => read(sdk.stream(warmpath, model, callOf(ask)).textStream, ask.pieces),
    rerank: async (warmpath, documents, { topN, ...rest } = {}) => {
      const call = { documents, query: 'q', ...(topN !== undefined && { topN }) };
      const { ranking } = await sdk.rerank(warmpath, rest, call);
      return ranking.map(({ originalIndex }) => originalIndex);
    },
  };
}

const passage = (id: string) => ({ id, content: `${id} was found in a year of many rains. `.repeat(8) });
const ask = (ids: string, fields: Partial<Ask> = {}): Ask => ({
  system: 'Answer from the documents.',
  messages: [{ role: 'user', content: 'What was found?' }],
  documents: [...ids].map(passage),
  ...fields,
});
const model = (fields: Partial<Model> = {}): Model => ({ received: [], ...fields });
const textOf = ({ received }: Model) =>
  (received.at(-1)!.prompt.at(-1)!.content as { text?: string }[]).map((part) => part.text ?? '').join('');
const labelsIn = (text: string) => [...text.matchAll(/<document id="(\w+)"/g)].map((match) => match[1]).join('');

/** What the middleware and the reranking model do in every version of the SDK. */
export function describeVersion(version: Version): void {
  describe(version.name, () => {
    it('has the documents in the prompt, in the order that was served', async () => {
      const warmpath = new LocalWarmpath();
      const mock = model();
      expect(await version.generate(warmpath, mock, ask('ab'))).toBe('Two words');
      await version.generate(warmpath, mock, ask('bca'));
      expect(labelsIn(textOf(mock))).toBe('abc');
      expect(textOf(mock)).toMatch(/relevance: \[c\] > \[a\]\.\nWhat was found\?$/);
      expect(mock.received.at(-1)!.providerOptions).toEqual({ other: { kept: true } });
      expect(mock.received.at(-1)!.prompt[0]).toMatchObject({ role: 'system', content: 'Answer from the documents.' });
    });

    it('leaves a call without documents alone', async () => {
      const warmpath = new LocalWarmpath();
      const mock = model();
      const { documents: _documents, ...plain } = ask('');
      await version.generate(warmpath, mock, plain);
      await version.stream(warmpath, mock, plain);
      for (const { prompt } of mock.received)
        expect(prompt[1]!.content).toMatchObject([{ type: 'text', text: 'What was found?' }]);
      expect(warmpath.history.requests).toBe(0);
    });

    it('streams, and tells what was cached', async () => {
      const warmpath = new LocalWarmpath();
      expect(await version.stream(warmpath, model({ cachedTokens: 0 }), ask('ab'))).toBe('Two words');
      const mock = model({ cachedTokens: 0 });
      await version.stream(warmpath, mock, ask('ba'));
      expect(labelsIn(textOf(mock))).toBe('ab');
      // Twice in a row nothing was cached of what should have been: other paths are gone as well.
      for (let time = 0; time < 4; time++) await version.stream(warmpath, mock, ask('ba'));
      expect(warmpath.history.state).toBe('degraded');
    });

    it.each([
      ['generate', 'at once', false],
      ['stream', 'at once', false],
      ['stream', 'before content', false],
      ['stream', 'after content', true],
    ] as const)('%s that fails %s: the prompt counts as cached: %s', async (way, fails, isCached) => {
      const warmpath = new LocalWarmpath();
      await version[way](warmpath, model({ fails }), ask('ab')).catch(() => undefined);
      const mock = model();
      await version.generate(warmpath, mock, ask('ba'));
      expect(labelsIn(textOf(mock))).toBe(isCached ? 'ab' : 'ba');
    });

    it('a reader that leaves leaves a prompt that is cached', async () => {
      const warmpath = new LocalWarmpath();
      await version.stream(warmpath, model(), { ...ask('ab'), pieces: 1 });
      const mock = model();
      await version.generate(warmpath, mock, ask('ba'));
      expect(labelsIn(textOf(mock))).toBe('ab');
    });

    it('repeats a conversation to the byte, files included, and sends no document twice', async () => {
      const warmpath = new LocalWarmpath();
      const mock = model();
      const image = { type: 'file', data: new Uint8Array([1, 2, 3]), mediaType: 'image/png' } as const;
      const first: Ask['messages'] = [{ role: 'user', content: [image, { type: 'text', text: 'What was found?' }] }];
      await version.generate(warmpath, mock, ask('ab', { messages: first, session: 's' }));
      const next: Ask['messages'] = [
        ...first,
        { role: 'assistant', content: 'Two words' },
        { role: 'user', content: 'And then?' },
      ];
      await version.generate(warmpath, mock, ask('bc', { messages: next, session: 's' }));
      const [sent, again] = mock.received.map(({ prompt }) => prompt);
      expect(again!.slice(0, sent!.length)).toEqual(sent);
      expect((sent![1]!.content as object[])[1]).toMatchObject({ type: 'file', mediaType: 'image/png' });
      expect(labelsIn(textOf(mock))).toBe('c');
      expect(textOf(mock)).toMatch(/earlier.*\[b\]/);
      // Another image is another conversation.
      const other = [
        { role: 'user', content: [{ ...image, data: new Uint8Array([1, 2, 4]) }, first[0]!.content[1]] },
        ...next.slice(1),
      ];
      await version.generate(warmpath, mock, ask('bc', { messages: other as Ask['messages'], session: 's' }));
      expect(labelsIn(textOf(mock))).toBe('bc');
    });

    it('repeats a conversation in a turn without documents, and knows turns that had none', async () => {
      const warmpath = new LocalWarmpath();
      const forgotten: string[] = [];
      const mock = model({ onForgotten: (session) => forgotten.push(session) });
      const messages: Ask['messages'] = [{ role: 'user', content: 'Hello.' }];
      const goOn = (content: string) =>
        messages.push({ role: 'assistant', content: 'Two words' }, { role: 'user', content });
      const turn = (fields: Partial<Ask>) =>
        version.generate(warmpath, mock, { system: 'Be brief.', messages, session: 's', ...fields });
      await turn({});
      goOn('What was found?');
      await turn({ documents: [passage('a')] });
      goOn('And then?');
      await turn({});
      const [, sent, again] = mock.received.map(({ prompt }) => prompt);
      expect(again!.slice(0, sent!.length)).toEqual(sent);
      expect(JSON.stringify(again)).toContain('a was found');
      expect(forgotten).toEqual([]);
    });

    it('tells of a conversation that is not known, which may be refused', async () => {
      const forgotten: string[] = [];
      const messages: Ask['messages'] = [
        { role: 'user', content: 'What was found?' },
        { role: 'assistant', content: 'Two words' },
        { role: 'user', content: 'And then?' },
      ];
      const mock = model({ onForgotten: (session) => forgotten.push(session) });
      await version.generate(new LocalWarmpath(), mock, ask('a', { messages, session: 's' }));
      expect([forgotten, mock.received.length]).toEqual([['s'], 1]);
      const refusing = model({
        onForgotten: () => {
          throw new Error('Send the documents again.');
        },
      });
      const warmpath = new LocalWarmpath();
      const asked = version.generate(warmpath, refusing, ask('a', { messages, session: 's' }));
      await expect(asked).rejects.toThrow('Send the documents again.');
      expect([refusing.received.length, warmpath.history.tree.nodes]).toEqual([0, 0]);
    });

    it('refuses what is no document', async () => {
      const refused = version.generate(new LocalWarmpath(), model(), ask('', { documents: [{ content: 7 }] }));
      await expect(refused).rejects.toMatchObject({ code: 'WARMPATH_INVALID_DOCUMENT' });
    });

    it('reranks for the cache', async () => {
      const warmpath = new LocalWarmpath();
      const texts = (ids: string) => [...ids].map((id) => passage(id).content);
      expect(await version.rerank(warmpath, texts('abc'))).toEqual([0, 1, 2]);
      const hints: unknown[] = [];
      const ranking = await version.rerank(warmpath, texts('dbab'), {
        onArranged: ({ hint }) => hints.push(hint?.labels.length),
      });
      expect(ranking).toEqual([2, 1, 0, 3]);
      expect(hints).toEqual([3]);
      expect(await version.rerank(warmpath, texts('cba'), { topN: 2 })).toHaveLength(2);
    });
  });
}
