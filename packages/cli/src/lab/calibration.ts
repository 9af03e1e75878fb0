import {
  type Arrangement,
  arrange,
  type Document,
  estimateTokens,
  fingerprint,
  observe,
  PromptSlots,
  prepareDocuments,
  renderDocuments,
  renderHint,
  ServedHistory,
} from '@warmpath/core';
import {
  createLabPolicy,
  type EvaluationQuestion,
  type LabPolicyName,
  type PrefixCacheModel,
  simulate,
  type Workload,
} from '@warmpath/lab';
import { cachedTokensOf, type EngineClient } from '../engine-client.js';

/** What one policy got from an engine, or from the model of its cache. */
export interface CalibratedShare {
  /** Reused tokens over all prompt tokens. */
  readonly cachedShare: number;
  /** Tokens of a request that had to be computed, hints included. */
  readonly uncachedTokens: number;
}

/** One policy on both. Tokens of the engine are as it counts, those of the model as Warmpath estimates. */
export interface Calibration {
  readonly policy: LabPolicyName;
  readonly engine: CalibratedShare;
  readonly model: CalibratedShare;
}

/** A question as both get it. */
interface CalibrationRequest {
  readonly documents: readonly Document[];
  /** What stands behind the documents: earlier turns, and the question. */
  readonly text: string;
}

export interface CalibrationSettings {
  readonly model: string;
  readonly createCache: () => PrefixCacheModel;
  readonly systemPrompt: string;
  /** Opens the prompts of a policy: what an earlier one left in the cache is of no use to it. */
  readonly mark: string;
}

/** What goes with a run on an engine. */
interface RunHooks {
  readonly signal: AbortSignal;
  /** Called after every answer. */
  readonly onRequest: () => void;
}

const TEMPLATE = 'xml';
/** Weight of the newest request in what is learned of the engine's way of counting. */
const NEWEST_WEIGHT = 0.2;

/** The questions of a data set as prompts: documents first, then the earlier turns, then the question. */
export function calibrationRequests(questions: readonly EvaluationQuestion[]): readonly CalibrationRequest[] {
  return questions.map(({ passages, text, conversation }) => {
    const earlier =
      conversation?.before.map(({ question, answer }) => `User: ${question}\nAssistant: ${answer}\n`) ?? [];
    return { documents: prepareDocuments(passages).documents, text: `${earlier.join('')}Question: ${text}` };
  });
}

/** Plays requests with one policy on the model of a cache. Deterministic. */
export function calibrateModel(
  requests: readonly CalibrationRequest[],
  policy: LabPolicyName,
  { createCache, systemPrompt, mark }: CalibrationSettings,
): CalibratedShare {
  const workload: Workload = {
    name: 'calibration',
    preamble: { key: 'preamble', tokens: estimateTokens(opening(mark, systemPrompt)) },
    requests: requests.map(({ documents, text }, number) => ({
      documents,
      question: { key: `question ${number}`, tokens: estimateTokens(text) },
    })),
  };
  const outcomes = simulate(workload, policy, { cache: createCache(), hints: true });
  return shareOf(outcomes);
}

/** Plays them on the engine, one after another. Errors: those of the client; `undefined` where it reports no counts. */
export async function calibrateEngine(
  requests: readonly CalibrationRequest[],
  policy: LabPolicyName,
  client: EngineClient,
  { model, createCache, systemPrompt, mark, signal, onRequest }: CalibrationSettings & RunHooks,
): Promise<CalibratedShare | undefined> {
  const { evictsLeastRecent, slots } = createCache();
  const history = new ServedHistory({
    evictsLeastRecent,
    ...(slots !== undefined && { slots: { prompts: new PromptSlots(slots), name: '' } }),
  });
  const system = opening(mark, systemPrompt);
  const preamble = { key: fingerprint([system]), tokens: estimateTokens(system) };
  const served: { readonly promptTokens: number; readonly cachedTokens: number | undefined }[] = [];
  let tokensPerEstimated = 1;
  for (const { documents, text } of requests) {
    const arrangement = arrange({ documents, preamble, policy: createLabPolicy(policy) }, history, served.length);
    observe({ kind: 'dispatched', arrangement, now: served.length }, history);
    const content = contentOf(arrangement, text);
    const messages = [
      { role: 'system', content: system },
      { role: 'user', content },
    ];
    const body = { model, messages, max_tokens: 1, temperature: 0 };
    const answer = (await client.post('/v1/chat/completions', body, signal)) as {
      readonly usage?: { readonly prompt_tokens?: number };
    };
    onRequest();
    const promptTokens = answer.usage?.prompt_tokens;
    if (promptTokens === undefined) return undefined;
    const cachedTokens = cachedTokensOf(answer.usage);
    const ratio = promptTokens / (preamble.tokens + estimateTokens(content));
    tokensPerEstimated += (served.length === 0 ? 1 : NEWEST_WEIGHT) * (ratio - tokensPerEstimated);
    const estimated = (tokens: number) => Math.round(tokens / tokensPerEstimated);
    const counted = {
      promptTokens: estimated(promptTokens),
      ...(cachedTokens !== undefined && { cachedTokens: estimated(cachedTokens) }),
    };
    observe({ kind: 'completed', arrangement, now: served.length, ...counted }, history);
    served.push({ promptTokens, cachedTokens });
  }
  // Several engines leave the count out where it is 0; one that never stated it says nothing.
  if (served.every(({ cachedTokens }) => cachedTokens === undefined)) return undefined;
  return shareOf(served.map(({ promptTokens, cachedTokens = 0 }) => ({ promptTokens, cachedTokens })));
}

function opening(mark: string, systemPrompt: string): string {
  return `${mark} ${systemPrompt}`;
}

function contentOf(arrangement: Arrangement, text: string): string {
  return renderDocuments(arrangement.documents, TEMPLATE) + renderHint(arrangement, TEMPLATE) + text;
}

function shareOf(
  outcomes: readonly { readonly promptTokens: number; readonly cachedTokens: number }[],
): CalibratedShare {
  let prompt = 0;
  let cached = 0;
  for (const { promptTokens, cachedTokens } of outcomes) {
    prompt += promptTokens;
    cached += cachedTokens;
  }
  return {
    cachedShare: prompt === 0 ? 0 : cached / prompt,
    uncachedTokens: outcomes.length === 0 ? 0 : (prompt - cached) / outcomes.length,
  };
}
