import type { ArrangedChat, LocalWarmpath } from '@warmpath/client';
import { arrangePrompt, type PromptMessage, type PromptOptions } from '@warmpath/client/internal';
import { canonicalJson } from '@warmpath/core/internal';
import { type CallParams, documentsOf, withoutDocuments } from './call.js';

/** Versions of the SDK's contract for language models: `v3` in AI SDK 6, `v4` in AI SDK 7. */
export type SpecificationVersion = 'v3' | 'v4';

/** A middleware for `wrapLanguageModel`. */
export interface WarmpathMiddleware<Version extends SpecificationVersion> {
  readonly specificationVersion: Version;
  /** Puts the call's documents into its prompt. Errors: those of `LocalWarmpath.arrangeChat`. */
  transformParams<Params extends CallParams>(call: {
    readonly params: Params;
    readonly model: { readonly modelId: string };
  }): Promise<Params>;
  /** Tells what the engine had cached, or that the call failed. */
  wrapGenerate<Result extends { readonly usage: unknown }>(call: {
    readonly doGenerate: () => PromiseLike<Result>;
    readonly params: CallParams;
  }): Promise<Result>;
  /** The same for a stream. */
  wrapStream<Part extends StreamPart, Result extends { readonly stream: ReadableStream<Part> }>(call: {
    readonly doStream: () => PromiseLike<Result>;
    readonly params: CallParams;
  }): Promise<Result>;
}

/** A part of a stream, as far as it matters here. */
export interface StreamPart {
  readonly type: string;
}

/**
 * Middleware for AI SDK 6: documents under `providerOptions.warmpath` go into the prompt, in an order that the engine
 * holds.
 */
export function warmpathMiddleware(warmpath: LocalWarmpath, options: PromptOptions = {}): WarmpathMiddleware<'v3'> {
  return middleware('v3', warmpath, options);
}

/** The same for AI SDK 7. */
export function warmpathMiddlewareV4(warmpath: LocalWarmpath, options: PromptOptions = {}): WarmpathMiddleware<'v4'> {
  return middleware('v4', warmpath, options);
}

function middleware<Version extends SpecificationVersion>(
  specificationVersion: Version,
  warmpath: LocalWarmpath,
  options: PromptOptions,
): WarmpathMiddleware<Version> {
  /** By the parameters that were handed on, which the wrapping functions are given in turn. */
  const chats = new WeakMap<CallParams, ArrangedChat<PromptMessage>>();
  return {
    specificationVersion,

    async transformParams({ params, model }) {
      const asked = documentsOf(params);
      if (asked === undefined) return params;
      const scope = `${model.modelId}\n${canonicalJson(params.tools ?? [])}`;
      const chat = arrangePrompt(warmpath, { ...asked, messages: params.prompt, scope }, options);
      const transformed = { ...withoutDocuments(params), prompt: chat.messages };
      chats.set(transformed, chat);
      return transformed;
    },

    async wrapGenerate({ doGenerate, params }) {
      const chat = chats.get(params);
      try {
        const result = await doGenerate();
        await chat?.completed(result.usage);
        return result;
      } catch (error) {
        await chat?.failed();
        throw error;
      }
    },

    async wrapStream<Part extends StreamPart, Result extends { readonly stream: ReadableStream<Part> }>({
      doStream,
      params,
    }: {
      readonly doStream: () => PromiseLike<Result>;
      readonly params: CallParams;
    }): Promise<Result> {
      const chat = chats.get(params);
      try {
        const result = await doStream();
        return chat === undefined ? result : { ...result, stream: watched(result.stream, chat) };
      } catch (error) {
        await chat?.failed();
        throw error;
      }
    },
  };
}

/** The same stream; what it says of the prompt goes to `chat`. */
function watched<Part extends StreamPart>(
  stream: ReadableStream<Part>,
  chat: ArrangedChat<PromptMessage>,
): ReadableStream<Part> {
  const reader = stream.getReader();
  let hasContent = false;
  /** A prompt whose answer has begun is prefilled, whatever became of the rest. */
  const settle = () => (hasContent ? chat.completed() : chat.failed());
  return new ReadableStream<Part>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) {
          await settle();
          controller.close();
          return;
        }
        if (value.type === 'finish') await chat.completed(value);
        hasContent ||= value.type.endsWith('-delta');
        controller.enqueue(value);
      } catch (error) {
        await settle();
        controller.error(error);
      }
    },
    async cancel(reason) {
      await settle();
      await reader.cancel(reason);
    },
  });
}
