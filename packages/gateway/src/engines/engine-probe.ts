import type { WarmpathError } from '@warmpath/core';
import { type Dialect, dialectOfOwner } from '../dialects/dialects.js';
import { isObject } from '../json/json-scanner.js';
import type { Upstream, UpstreamRequest } from './upstream.js';

/** What is at an engine's address. */
export type EngineState =
  /** The engine lists its models. */
  | 'up'
  /** The engine needs a key. Clients may send theirs. */
  | 'wants-key'
  /** No answer, or the engine is not ready. */
  | 'down'
  /** The server there does not speak the OpenAI API. */
  | 'not-an-engine'
  /** This gateway itself, or a gateway whose engine this gateway is. */
  | 'loop';

/** The result of a probe, for the operator. */
export interface EngineReport {
  /** The engine's address, without credentials. */
  readonly url: string;
  readonly state: EngineState;
  /** Listed models; none unless `up`. */
  readonly models: readonly string[];
  /** The kind of engine, as it reports; `undefined` unless `up`, or if it does not report any. */
  readonly dialect: Dialect | undefined;
  /** Slots, if its kind has slots and it reports them. */
  readonly slots: number | undefined;
  /** Blocks of its prefix cache and tokens per block, if its kind has blocks and it reports them. */
  readonly cacheSize: CacheSize | undefined;
  /** Whether it reuses anything of earlier prompts; `undefined` if it does not report it. */
  readonly isReused: boolean | undefined;
  /** The problem in one sentence; `undefined` if there is none. */
  readonly problem: string | undefined;
  /** The remedy. */
  readonly remedy: string | undefined;
}

/** Size of a prefix cache. */
interface CacheSize {
  readonly blocks: number;
  readonly blockTokens: number;
  readonly isReused: boolean;
}

/** Bytes of metrics that are read, at most. */
const METRICS_BYTES = 4_194_304;
/** Bytes of a list of models that are read, at most. */
const LIST_BYTES = 1_048_576;
/** Models in a report, at most. */
const NAMED_MODELS = 8;

/** Bytes of an engine's properties that are read, at most. They contain chat templates. */
const PROPERTY_BYTES = 1_048_576;
/** Slots that a llama-server may have (`LLAMA_MAX_SEQ`). */
const MAX_SLOTS = 256;

/** The result of a request for a text. */
interface TextAnswer {
  readonly status: number;
  readonly text: string;
}

/** Options of a probe. */
export interface EngineQuestion {
  /** Headers of the gateway's own requests. */
  readonly headers: Record<string, string | string[]>;
  /** Bounds each request. */
  readonly totalMs: number;
  /** The kind of engine if it does not report any. */
  readonly dialect: Dialect;
}

/**
 * Requests the models at the engine's address, and reports what is there. Asks an engine with slots for their number.
 * Never rejects.
 */
export async function probeEngine(upstream: Upstream, question: EngineQuestion): Promise<EngineReport> {
  const { url } = upstream;
  const headers = { ...question.headers, 'accept-encoding': 'identity' };
  const answer = await askModels(upstream, headers, question.totalMs);
  const report = (state: EngineState, problem?: string, remedy?: string): EngineReport => ({
    url,
    state,
    models: [],
    dialect: undefined,
    slots: undefined,
    cacheSize: undefined,
    isReused: undefined,
    problem,
    remedy,
  });
  if ('code' in answer) return report('down', answer.message, remedyOf(answer.code));
  const { status, text } = answer;
  if (status === 508) {
    return report('loop', 'This address leads back to this gateway.', 'Give the address of the engine itself.');
  }
  if (status === 401 || status === 403) {
    return report(
      'wants-key',
      `The engine needs a key (status ${status}).`,
      'Clients may send their own keys. Or set `upstream.apiKey` (`serve`: `--key-env NAME`).',
    );
  }
  if (status === 404 || status === 405) return report('not-an-engine', `There is no ${url}/v1/models.`, BASE_URL);
  if (status >= 300 && status < 400) {
    return report('not-an-engine', `It redirects to another address (status ${status}).`, BASE_URL);
  }
  if (status >= 500) {
    return report(
      'down',
      `It answers with status ${status}: it is starting, or a proxy in front of it cannot reach it.`,
      WAIT,
    );
  }
  if (/^\s*</.test(text)) return report('not-an-engine', 'An HTML page is there, no OpenAI API.', BASE_URL);
  const models = status < 300 ? modelsIn(text) : undefined;
  if (models === undefined) {
    return report('not-an-engine', `Its answer is no list of models (status ${status}).`, BASE_URL);
  }
  const { slotCount, cacheSize: cacheMetric, reuseReport } = models.dialect ?? question.dialect;
  const asked = { ...question, headers };
  const slots = slotCount === undefined ? undefined : await askJson(upstream, slotCount, asked);
  const cacheSize = cacheMetric === undefined ? undefined : await askCacheSize(upstream, cacheMetric, asked);
  const reuse = reuseReport === undefined ? undefined : await askJson(upstream, reuseReport, asked);
  return {
    ...report('up'),
    ...models,
    slots: slotsIn(slots),
    cacheSize,
    isReused: reuse === undefined ? cacheSize?.isReused : reuse['reuse'] !== 'none',
  };
}

const BASE_URL =
  "Give the base URL of the engine's OpenAI API, such as http://127.0.0.1:8000 (vLLM) or http://127.0.0.1:8080 (llama-server).";
const WAIT = 'Wait, or see its log.';

function remedyOf(code: WarmpathError['code']): string {
  if (code === 'WARMPATH_UPSTREAM_TIMEOUT')
    return 'Check the address and firewalls, or wait until the engine has started.';
  return 'Start the engine, or correct its address (`--engine`, `upstream.url`).';
}

function modelsIn(text: string): Pick<EngineReport, 'models' | 'dialect'> | undefined {
  const rows = readModels(text);
  if (rows === undefined) return undefined;
  const names = rows.map(({ id }) => id).filter((name) => typeof name === 'string');
  const owner = rows[0]?.owned_by;
  return {
    models: names.slice(0, NAMED_MODELS),
    dialect: dialectOfOwner(typeof owner === 'string' ? owner : undefined),
  };
}

/** The reported number of slots; `undefined` if it reports none, or an impossible number. */
function slotsIn({ total_slots: slots }: Readonly<Record<string, unknown>> = {}): number | undefined {
  return typeof slots === 'number' && Number.isInteger(slots) && slots > 0 && slots <= MAX_SLOTS ? slots : undefined;
}

/** The object at a path of the engine; `undefined` if there is none. */
async function askJson(
  upstream: Upstream,
  path: string,
  { headers, totalMs }: EngineQuestion,
): Promise<Readonly<Record<string, unknown>> | undefined> {
  const answer = await askText(upstream, { path, headers }, { totalMs, limitBytes: PROPERTY_BYTES });
  if ('code' in answer || answer.status !== 200) return undefined;
  try {
    const value: unknown = JSON.parse(answer.text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

async function askCacheSize(
  upstream: Upstream,
  metric: string,
  { headers, totalMs }: EngineQuestion,
): Promise<CacheSize | undefined> {
  const answer = await askText(upstream, { path: '/metrics', headers }, { totalMs, limitBytes: METRICS_BYTES });
  if ('code' in answer || answer.status !== 200) return undefined;
  const labels = new RegExp(`^${metric}\\{(.*)\\}`, 'm').exec(answer.text)?.[1] ?? '';
  const count = (label: string) => Number(new RegExp(`(?:^|,)${label}="(\\d+)"`).exec(labels)?.[1]);
  const [blocks, blockTokens] = [count('num_gpu_blocks'), count('block_size')];
  const isReused = !/(?:^|,)enable_prefix_caching="False"/.test(labels);
  return blocks > 0 && blockTokens > 0 ? { blocks, blockTokens, isReused } : undefined;
}

/** The models in an answer of `GET /v1/models`; `undefined` if it is no list of models. */
export function readModels(
  text: string,
): readonly { readonly id?: unknown; readonly owned_by?: unknown }[] | undefined {
  try {
    const { data } = JSON.parse(text) as { readonly data?: unknown };
    if (!Array.isArray(data)) return undefined;
    return data.filter((model: unknown) => typeof model === 'object' && model !== null);
  } catch {
    return undefined;
  }
}

/** `GET /v1/models` within a time: its answer, or the reason of the failure. Never rejects. */
export function askModels(
  upstream: Upstream,
  headers: Record<string, string | string[]>,
  totalMs: number,
): Promise<TextAnswer | WarmpathError> {
  return askText(upstream, { path: '/v1/models', headers }, { totalMs, limitBytes: LIST_BYTES });
}

/** Requests a text (with a body: by POST) within a time, up to a number of bytes. Never rejects. */
export function askText(
  upstream: Upstream,
  { path, headers, body = null }: Pick<UpstreamRequest, 'path' | 'headers'> & Partial<Pick<UpstreamRequest, 'body'>>,
  { totalMs, limitBytes }: { readonly totalMs: number; readonly limitBytes: number },
): Promise<TextAnswer | WarmpathError> {
  return new Promise((resolve) => {
    let status = 0;
    const chunks: Buffer[] = [];
    let bytes = 0;
    upstream.start(
      { method: body === null ? 'GET' : 'POST', path, headers, body },
      {
        onHead: (answered) => {
          status = answered;
        },
        onData: (chunk) => {
          bytes += chunk.length;
          if (bytes <= limitBytes) chunks.push(chunk);
          return true;
        },
        onEnd: () => resolve({ status, text: Buffer.concat(chunks).toString('utf8') }),
        onError: resolve,
      },
      // A retry would exceed the time limit.
      { totalMs, isBackground: true, retries: body === null },
    );
  });
}
