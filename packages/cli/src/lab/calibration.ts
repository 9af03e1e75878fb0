import {
  type Arrangement,
  arrange,
  type Document,
  estimateTokens,
  observe,
  prepareDocuments,
  renderHint,
  ServedHistory,
} from '@warmpath/core';
import { fingerprint, PromptSlots, renderDocuments } from '@warmpath/core/internal';
import type { Dialect } from '@warmpath/gateway';
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
  /** Tokens of a request in all. */
  readonly promptTokens: number;
}

/** One policy on both. Tokens of the engine are as it counts, those of the model as Warmpath estimates. */
export interface Calibration {
  readonly policy: LabPolicyName;
  readonly engine: CalibratedShare;
  readonly model: CalibratedShare;
  /** Whether the two cached shares lie within `AGREES_WITHIN`. */
  readonly agrees: boolean;
}

/** A model of a cache is taken to agree with its engine up to this difference of cached shares. */
export const AGREES_WITHIN = 0.02;

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
/** The largest cache that can be named. */
const MAX_TOKENS = 999_999_999;
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

/** One policy on both, and whether they agree. */
export function calibrationOf(policy: LabPolicyName, engine: CalibratedShare, model: CalibratedShare): Calibration {
  return { policy, engine, model, agrees: Math.abs(engine.cachedShare - model.cachedShare) <= AGREES_WITHIN };
}

/** The slots of a llama-server (`GET /props`); `undefined` where it does not say. */
async function slotsOf(client: EngineClient, signal: AbortSignal): Promise<number | undefined> {
  const props = (await client.get('/props', signal).catch(() => undefined)) as {
    readonly total_slots?: unknown;
  } | null;
  const slots = props?.total_slots;
  return Number.isSafeInteger(slots) && (slots as number) > 0 && (slots as number) < 1_000
    ? (slots as number)
    : undefined;
}

/** The lab's model of what such an engine caches, before its sizes are known, by what it says of itself. */
export async function modelOf({ reuse }: Dialect, client: EngineClient, signal: AbortSignal): Promise<string> {
  if (reuse.kind === 'slots') {
    const slots = await slotsOf(client, signal);
    return slots === undefined ? 'slots' : `slots:${slots}`;
  }
  return reuse.kind === 'prefix' && reuse.unit === 1 ? 'radix' : 'unlimited';
}

/** What the embedded engine can hold, in its own tokens. */
export interface EngineRoom {
  readonly deviceTokens: number;
  /** 0 where nothing has left the device yet: then the host never mattered, nor is known what a token takes there. */
  readonly hostTokens: number;
}

/** What `GET /kv` of the embedded engine says. */
interface KvReport {
  readonly reuse?: string;
  readonly cells?: { readonly total?: number };
  readonly tiers?: {
    readonly host?: { readonly tokens: number; readonly bytes: number; readonly capacity_bytes: number };
  };
}

/** The room of an embedded engine that has served requests; `undefined` for engines that do not say. */
export async function roomOf(client: EngineClient, signal: AbortSignal): Promise<EngineRoom | undefined> {
  const report = (await client.get('/kv?paths=0', signal).catch(() => undefined)) as KvReport | null | undefined;
  const deviceTokens = report?.cells?.total;
  if (deviceTokens === undefined || !(deviceTokens > 0) || report?.reuse !== 'prefix') return undefined;
  const host = report.tiers?.host;
  const holds = host !== undefined && host.tokens > 0 && host.bytes > 0;
  return { deviceTokens, hostTokens: holds ? Math.floor((host.capacity_bytes * host.tokens) / host.bytes) : 0 };
}

/**
 * The model of an engine with that room. The engine reuses to the token along a tree over cells and host memory, which
 * is a radix tree of both together, in tokens as Warmpath estimates; what goes first is decided by `pgdsf`.
 */
export function modelWithRoom({ deviceTokens, hostTokens }: EngineRoom, tokensPerEstimated: number): string {
  const tokens = Math.max(1, Math.round((deviceTokens + hostTokens) / tokensPerEstimated));
  return tokens > MAX_TOKENS ? 'radix' : `radix:${tokens}:pgdsf`;
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
    promptTokens: outcomes.length === 0 ? 0 : prompt / outcomes.length,
  };
}
