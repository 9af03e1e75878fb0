import { warmpathMiddlewareV4, warmpathRerankingV4 } from '@warmpath/ai-sdk';
import type { LocalWarmpath } from '@warmpath/client';
import { generateText, type ModelMessage, rerank, streamText, wrapLanguageModel } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import {
  answers,
  type Call,
  describeVersion,
  type Model,
  rethrow,
  version,
} from '../../packages/ai-sdk/test/middleware.cases.js';

const modelOf = (warmpath: LocalWarmpath, model: Model) =>
  wrapLanguageModel({
    model: new MockLanguageModelV4(answers(model)),
    middleware: warmpathMiddlewareV4(warmpath, model),
  });

/** The messages of the cases are plain in both versions, whose types differ in what these do not have. */
const inSeven = ({ messages, ...call }: Call) => ({ ...call, messages: messages as unknown as ModelMessage[] });

describeVersion(
  version('AI SDK 7', {
    generate: (warmpath, model, call) => generateText({ model: modelOf(warmpath, model), ...inSeven(call) }),
    stream: (warmpath, model, call) =>
      streamText({ model: modelOf(warmpath, model), ...inSeven(call), onError: rethrow }),
    rerank: (warmpath, options, call) => rerank({ model: warmpathRerankingV4(warmpath, options), ...call }),
  }),
);
