import type { LocalWarmpath } from '@warmpath/client';
import { generateText, rerank, streamText, wrapLanguageModel } from 'ai';
import { MockLanguageModelV3 } from 'ai/test';
import { warmpathMiddleware, warmpathReranking } from '../src/index.js';
import { answers, describeVersion, type Model, rethrow, version } from './middleware.cases.js';

// Version 7, which asks for a newer Node than ours: `test/frameworks/ai-sdk-7.test.ts`.

const modelOf = (warmpath: LocalWarmpath, model: Model) =>
  wrapLanguageModel({
    model: new MockLanguageModelV3(answers(model)),
    middleware: warmpathMiddleware(warmpath, model),
  });

describeVersion(
  version('AI SDK 6', {
    generate: (warmpath, model, call) => generateText({ model: modelOf(warmpath, model), ...call }),
    stream: (warmpath, model, call) => streamText({ model: modelOf(warmpath, model), ...call, onError: rethrow }),
    rerank: (warmpath, options, call) => rerank({ model: warmpathReranking(warmpath, options), ...call }),
  }),
);
