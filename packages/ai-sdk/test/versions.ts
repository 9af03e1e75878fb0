import { readFile } from 'node:fs/promises';
import type { LocalWarmpath } from '@warmpath/client';
import * as six from 'ai';
import * as sixTest from 'ai/test';
import * as seven from 'ai-7';
import * as sevenTest from 'ai-7/test';
import {
  type RerankingOptions,
  warmpathMiddleware,
  warmpathMiddlewareV4,
  warmpathReranking,
  warmpathRerankingV4,
} from '../src/index.js';

/** What a test asks of a model, in either version. */
export interface Ask {
  readonly system?: string;
  readonly messages: six.ModelMessage[] & seven.ModelMessage[];
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

const rethrow = ({ error }: { error: unknown }) => {
  throw error;
};

type Params = { readonly prompt: unknown; readonly providerOptions?: unknown };

/** What a call says beside its model, in the same words in both versions. */
interface Call {
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

/** What the two versions call differently, each with its own types. */
interface Sdk {
  generate(warmpath: LocalWarmpath, model: Model, call: Call): PromiseLike<{ readonly text: string }>;
  stream(warmpath: LocalWarmpath, model: Model, call: Call): { readonly textStream: AsyncIterable<string> };
  rerank(
    warmpath: LocalWarmpath,
    options: RerankingOptions,
    call: RerankCall,
  ): PromiseLike<{ readonly ranking: readonly { readonly originalIndex: number }[] }>;
}

const answers = (model: Model) => ({
  doGenerate: async (params: Params) => answer(model, params),
  doStream: async (params: Params) => answerStream(model, params),
});

const modelOfSix = (warmpath: LocalWarmpath, model: Model) =>
  six.wrapLanguageModel({
    model: new sixTest.MockLanguageModelV3(answers(model)),
    middleware: warmpathMiddleware(warmpath, model),
  });

const modelOfSeven = (warmpath: LocalWarmpath, model: Model) =>
  seven.wrapLanguageModel({
    model: new sevenTest.MockLanguageModelV4(answers(model)),
    middleware: warmpathMiddlewareV4(warmpath, model),
  });

export const VERSIONS: readonly Version[] = [
  version(`AI SDK ${await versionOf('ai')}`, {
    generate: (warmpath, model, call) => six.generateText({ model: modelOfSix(warmpath, model), ...call }),
    stream: (warmpath, model, call) =>
      six.streamText({ model: modelOfSix(warmpath, model), ...call, onError: rethrow }),
    rerank: (warmpath, options, call) => six.rerank({ model: warmpathReranking(warmpath, options), ...call }),
  }),
  version(`AI SDK ${await versionOf('ai-7')}`, {
    generate: (warmpath, model, call) => seven.generateText({ model: modelOfSeven(warmpath, model), ...call }),
    stream: (warmpath, model, call) =>
      seven.streamText({ model: modelOfSeven(warmpath, model), ...call, onError: rethrow }),
    rerank: (warmpath, options, call) => seven.rerank({ model: warmpathRerankingV4(warmpath, options), ...call }),
  }),
];

function version(name: string, sdk: Sdk): Version {
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

async function versionOf(name: string): Promise<string> {
  const file = new URL(`../../../node_modules/${name}/package.json`, import.meta.url);
  return (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version;
}
