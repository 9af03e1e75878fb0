import { wrapLLMEvent } from '@llamaindex/core/decorator';
import { CallbackManager, Settings } from '@llamaindex/core/global';
import { BaseLLM, type ChatMessage, type ChatResponse, type LLMChatParamsNonStreaming } from '@llamaindex/core/llms';
import type { QueryBundle } from '@llamaindex/core/query-engine';
import { RetrieverQueryEngine } from '@llamaindex/core/query-engine';
import { getResponseSynthesizer } from '@llamaindex/core/response-synthesizers';
import { BaseRetriever } from '@llamaindex/core/retriever';
import { type NodeWithScore, TextNode } from '@llamaindex/core/schema';
import { LocalWarmpath, Warmpath } from '@warmpath/client';
import { type PostprocessorOptions, WarmpathPostprocessor } from '@warmpath/llamaindex';
import { describe, expect, it } from 'vitest';

const passage = (letter: string) => `${letter} was found in a year of many rains. `.repeat(8);
const found = (letters: string): NodeWithScore[] =>
  [...letters].map((letter, rank) => ({ node: new TextNode({ text: passage(letter) }), score: 1 - rank / 10 }));
const lettersOf = (text: string) =>
  [...text.matchAll(/(?<![a-z] )\b([a-z]) was found(?! in a year of many rains\. \1)/g)]
    .map(([, letter]) => letter)
    .join('');

/** Finds the passages that the question names, letter by letter. */
class LetterRetriever extends BaseRetriever {
  // The base class hides its constructor.
  // biome-ignore lint/complexity/noUselessConstructor: it makes the constructor public
  constructor() {
    super();
  }

  override async _retrieve({ query }: QueryBundle): Promise<NodeWithScore[]> {
    return found(String(query));
  }
}

/** Answers with usage, and keeps its prompts. */
class TestModel extends BaseLLM {
  readonly prompts: string[] = [];
  readonly metadata = {
    model: 'm',
    temperature: 0,
    topP: 1,
    contextWindow: 16_384,
    tokenizer: undefined,
    structuredOutput: false,
  };
  readonly #cached: number;

  constructor(cached: number) {
    super();
    this.#cached = cached;
    // What the decorator of the real models does.
    this.chat = wrapLLMEvent(this.chat as never, {} as never).bind(this) as never;
  }

  override chat = (async ({ messages }: LLMChatParamsNonStreaming): Promise<ChatResponse> => {
    this.prompts.push(messages.map(({ content }: ChatMessage) => String(content)).join('\n'));
    const usage = { prompt_tokens: 400, prompt_tokens_details: { cached_tokens: this.#cached } };
    return { message: { role: 'assistant', content: 'Much.' }, raw: { usage } };
  }) as never;
}

function engineOver(cached: number, options: PostprocessorOptions = {}) {
  const arranger = new LocalWarmpath();
  const postprocessor = new WarmpathPostprocessor(arranger, options);
  const model = new TestModel(cached);
  const engine = new RetrieverQueryEngine(new LetterRetriever(), getResponseSynthesizer('compact', { llm: model }), [
    postprocessor,
  ]);
  return { arranger, postprocessor, model, engine };
}

describe('WarmpathPostprocessor in a query engine', () => {
  it('has the prompt continue what was served', async () => {
    const { engine, model } = engineOver(0);
    await engine.query({ query: 'abc' });
    const response = await engine.query({ query: 'bda' });
    expect(model.prompts.map(lettersOf)).toEqual(['abc', 'abd']);
    expect(response.sourceNodes!.map(({ score }) => score)).toEqual([0.8, 1, 0.9]);
  });

  it('tells what the engine had cached, until it is told to stop', async () => {
    const callbacks = new CallbackManager();
    Settings.callbackManager = callbacks;
    const { arranger, engine, postprocessor } = engineOver(0);
    const stop = postprocessor.listen(callbacks);
    for (let i = 0; i < 6; i++) await engine.query({ query: 'ab' });
    expect(arranger.history.state).toBe('degraded');
    stop();
    const other = engineOver(0);
    other.postprocessor.listen(callbacks)();
    for (let i = 0; i < 6; i++) await other.engine.query({ query: 'ab' });
    expect(other.arranger.history.state).toBe('history');
  });

  it('keeps the very nodes, each text once, and all of them as they were without an order', async () => {
    const { postprocessor } = engineOver(0);
    const nodes = found('aba');
    const arranged = await postprocessor.postprocessNodes(nodes);
    expect(arranged).toHaveLength(2);
    expect(arranged[0]).toBe(nodes[0]);
    const codes: unknown[] = [];
    const unreachable = new WarmpathPostprocessor(new Warmpath({ baseURL: 'http://127.0.0.1:1' }), {
      onError: (error) => codes.push((error as { code: string }).code),
    });
    expect(await unreachable.postprocessNodes(nodes)).toBe(nodes);
    expect(codes).toEqual(['WARMPATH_GATEWAY_UNREACHABLE']);
    expect(await unreachable.postprocessNodes([])).toEqual([]);
  });
});
