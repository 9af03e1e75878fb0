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
import { type Dialect, readCacheFacts } from '@warmpath/gateway';
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

/** One policy on both. Tokens of the model are estimates in the measure of the engine. */
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

/** How an engine counts. */
export interface EngineTokens {
  /** Tokens that its chat template adds to a system message and a user message. */
  readonly template: number;
  /** Its tokens over those that Warmpath estimates, of texts. */
  readonly perEstimated: number;
}

/** What goes with a run on an engine. */
interface RunHooks {
  /** Tokens of the engine's chat template. */
  readonly template: number;
  readonly signal: AbortSignal;
  /** Called after every answer. */
  readonly onRequest: () => void;
}

const TEMPLATE = 'xml';
/** Part of a template's tokens that stands behind the documents: the end of a message and the start of the answer. */
const TEMPLATE_END_PART = 2 / 5;
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

/** Plays requests with one policy on the model of a cache, in tokens as the engine counts. Deterministic. */
export function calibrateModel(
  requests: readonly CalibrationRequest[],
  policy: LabPolicyName,
  { createCache, systemPrompt, mark, tokens }: CalibrationSettings & { readonly tokens: EngineTokens },
): CalibratedShare {
  const counted = (estimated: number) => Math.max(1, Math.round(estimated * tokens.perEstimated));
  const end = Math.round(tokens.template * TEMPLATE_END_PART);
  const system = counted(estimateTokens(opening(mark, systemPrompt)));
  const workload: Workload = {
    name: 'calibration',
    preamble: { key: 'preamble', tokens: system + tokens.template - end },
    requests: requests.map(({ documents, text }, number) => ({
      documents: documents.map((document) => ({ ...document, tokens: counted(document.tokens) })),
      question: { key: `question ${number}`, tokens: counted(estimateTokens(text)) + end },
    })),
  };
  const outcomes = simulate(workload, policy, { cache: createCache(), hints: true });
  return shareOf(outcomes);
}

/** Tokens of an engine's chat template; 0 where it does not count an almost empty chat. */
export async function templateTokensOf(client: EngineClient, model: string, signal: AbortSignal): Promise<number> {
  const messages = ['system', 'user'].map((role) => ({ role, content: 'a' }));
  const counted = await countsOf(client, { model, messages, max_tokens: 1 }, signal).catch(() => undefined);
  return counted === undefined ? 0 : Math.max(0, counted.promptTokens - messages.length);
}

/** What an engine counts of a chat; `undefined` where it does not report it. */
async function countsOf(
  client: EngineClient,
  body: object,
  signal: AbortSignal,
): Promise<{ readonly promptTokens: number; readonly cachedTokens: number | undefined } | undefined> {
  const { usage } = (await client.post('/v1/chat/completions', body, signal)) as {
    readonly usage?: { readonly prompt_tokens?: number };
  };
  const promptTokens = usage?.prompt_tokens;
  return promptTokens === undefined ? undefined : { promptTokens, cachedTokens: cachedTokensOf(usage) };
}

/** Plays them on the engine, one after another. Errors: those of the client; `undefined` where it reports no counts. */
export async function calibrateEngine(
  requests: readonly CalibrationRequest[],
  policy: LabPolicyName,
  client: EngineClient,
  { model, createCache, systemPrompt, mark, template, signal, onRequest }: CalibrationSettings & RunHooks,
): Promise<{ readonly engine: CalibratedShare; readonly tokens: EngineTokens } | undefined> {
  const { evictsLeastRecent, slots } = createCache();
  const history = new ServedHistory({
    evictsLeastRecent,
    ...(slots !== undefined && { slots: { prompts: new PromptSlots(slots), name: '' } }),
  });
  const system = opening(mark, systemPrompt);
  const preamble = { key: fingerprint([system]), tokens: estimateTokens(system) };
  const served: { readonly promptTokens: number; readonly cachedTokens: number | undefined }[] = [];
  let tokensPerEstimated = 1;
  let [textTokens, estimatedTokens] = [0, 0];
  for (const { documents, text } of requests) {
    const arrangement = arrange({ documents, preamble, policy: createLabPolicy(policy) }, history, served.length);
    observe({ kind: 'dispatched', arrangement, now: served.length }, history);
    const content = contentOf(arrangement, text);
    const messages = [
      { role: 'system', content: system },
      { role: 'user', content },
    ];
    const body = { model, messages, max_tokens: 1, temperature: 0 };
    const counts = await countsOf(client, body, signal);
    onRequest();
    if (counts === undefined) return undefined;
    const { promptTokens, cachedTokens } = counts;
    const textEstimate = preamble.tokens + estimateTokens(content);
    textTokens += promptTokens - template;
    estimatedTokens += textEstimate;
    const ratio = promptTokens / textEstimate;
    tokensPerEstimated += (served.length === 0 ? 1 : NEWEST_WEIGHT) * (ratio - tokensPerEstimated);
    const estimated = (tokens: number) => Math.round(tokens / tokensPerEstimated);
    const counted = {
      promptTokens: estimated(promptTokens),
      ...(cachedTokens !== undefined && { cachedTokens: estimated(cachedTokens) }),
    };
    observe({ kind: 'completed', arrangement, now: served.length, ...counted }, history);
    served.push(counts);
  }
  // Several engines leave the count out where it is 0; one that never stated it says nothing.
  if (served.every(({ cachedTokens }) => cachedTokens === undefined)) return undefined;
  return {
    engine: shareOf(served.map(({ promptTokens, cachedTokens = 0 }) => ({ promptTokens, cachedTokens }))),
    tokens: { template, perEstimated: estimatedTokens === 0 ? 1 : textTokens / estimatedTokens },
  };
}

/** One policy on both, and whether they agree. */
export function calibrationOf(policy: LabPolicyName, engine: CalibratedShare, model: CalibratedShare): Calibration {
  return { policy, engine, model, agrees: Math.abs(engine.cachedShare - model.cachedShare) <= AGREES_WITHIN };
}

/** The lab's model of what such an engine caches, before its sizes are known, by what it says of itself. */
export async function modelOf(dialect: Dialect, client: EngineClient, signal: AbortSignal): Promise<string> {
  const { cacheSize, slots } = await readCacheFacts(dialect, (path) =>
    client.getText(path, signal).catch(() => undefined),
  );
  // vLLM keeps one block for itself.
  if (dialect.name === 'vllm' && cacheSize !== undefined && cacheSize.blocks > 1) {
    return `${cacheSize.blocks - 1}x${cacheSize.blockTokens}`;
  }
  const { reuse } = dialect;
  if (reuse.kind === 'slots') return slots === undefined ? 'slots' : `slots:${slots}`;
  const isOfTokens = reuse.kind === 'checkpoint' || (reuse.kind === 'prefix' && reuse.unit === 1);
  return isOfTokens ? 'radix' : 'unlimited';
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
 * is a radix tree of both together; what goes first is decided by `pgdsf`.
 */
export function modelWithRoom({ deviceTokens, hostTokens }: EngineRoom): string {
  const tokens = deviceTokens + hostTokens;
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
