import type { WarmpathError } from '@warmpath/core';
import { type CacheFacts, readCacheFacts } from '../dialects/cache-facts.js';
import { type Dialect, dialectOfOwner } from '../dialects/dialects.js';
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
  /** What it says about its cache; empty unless `up`. */
  readonly facts: CacheFacts;
  /** The problem in one sentence; `undefined` if there is none. */
  readonly problem: string | undefined;
  /** The remedy. */
  readonly remedy: string | undefined;
}

/** Bytes of an answer about an engine's cache that are read, at most. Metrics are the longest. */
const FACT_BYTES = 4_194_304;
/** Bytes of a list of models that are read, at most. */
const LIST_BYTES = 1_048_576;
/** Models in a report, at most. */
const NAMED_MODELS = 8;

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
 * Requests the models at the engine's address, and reports what is there, and what it says about its cache. Never
 * rejects.
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
    facts: {},
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
  const facts = await readCacheFacts(models.dialect ?? question.dialect, async (path) => {
    const said = await askText(upstream, { path, headers }, { totalMs: question.totalMs, limitBytes: FACT_BYTES });
    return 'code' in said || said.status !== 200 ? undefined : said.text;
  });
  return { ...report('up'), ...models, facts };
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
