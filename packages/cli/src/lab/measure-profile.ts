import { randomBytes } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import type { PrefillProfile } from '@warmpath/core/internal';
import { mean } from '@warmpath/lab';
import { probeText } from '../doctor/probe-prompts.js';
import type { EngineClient, MeasuredAnswer } from '../engine-client.js';

/** What is to be measured. */
export interface ProfilePlan {
  readonly model: string;
  /** Cached tokens to aim at, ascending, 0 first. */
  readonly cachedTokens: readonly number[];
  /** New tokens to aim at, ascending. */
  readonly newTokens: readonly number[];
  /** Rounds over the whole grid. */
  readonly repeats: number;
}

/** A measured grid. The axes hold the counts that the engine reported, not those that were aimed at. */
export interface MeasuredProfile extends PrefillProfile {
  readonly model: string;
  /** Rounds that the medians are over. */
  readonly repeats: number;
  /** Whether the engine reported prompt tokens and cached tokens; what it did not is taken as aimed at. */
  readonly reports: { readonly promptTokens: boolean; readonly cachedTokens: boolean };
  /** Rows aimed at that the engine did not cache more for than for the row before; they are left out. */
  readonly droppedCachedTokens: readonly number[];
}

/** One answer at one point of the grid. */
interface Sample {
  readonly row: number;
  readonly column: number;
  readonly cached: number;
  readonly fresh: number;
  readonly ms: number;
}

/** Words of the two prompts that tell how many tokens a word has here. */
const CALIBRATION_WORDS = [100, 500] as const;

/**
 * Requests that a plan sends: two to calibrate, and each round one a point and one to fill the cache for each row with
 * cached tokens.
 */
export function requestsOf({ cachedTokens, newTokens, repeats }: ProfilePlan): number {
  const rows = cachedTokens.filter((tokens) => tokens > 0).length;
  return CALIBRATION_WORDS.length + repeats * (cachedTokens.length * newTokens.length + rows);
}

/**
 * Measures T(cached, new) on a live engine, one request at a time: a prompt that fills the cache, then prompts that go
 * on from it with texts never sent before, each timed to its first token. Every prompt opens with a fresh number, so
 * nothing is cached by accident. Rounds go over the whole grid, so that whatever else the machine does meets all points
 * alike; a stop between two requests keeps the rounds that are done.
 */
export class ProfileMeasurement {
  readonly #client: EngineClient;
  readonly #plan: ProfilePlan;
  readonly #onRequest: () => void;
  #samples: Sample[] = [];
  #rounds = 0;
  #reportsPrompt = true;
  #reportsCached = true;
  /** Tokens of a prompt of no words, and of each word. */
  #scale = { head: 0, perWord: 1 };

  /** @param onRequest called after every answer */
  constructor(client: EngineClient, plan: ProfilePlan, onRequest: () => void = () => {}) {
    this.#client = client;
    this.#plan = plan;
    this.#onRequest = onRequest;
  }

  /** Measures all rounds. Errors: those of `EngineClient`; the signal's own. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#calibrate(signal);
    while (this.#rounds < this.#plan.repeats) {
      this.#samples.push(...(await this.#round(signal)));
      this.#rounds++;
    }
  }

  /** The medians of the rounds that are done; undefined before the first is. */
  profile(): MeasuredProfile | undefined {
    if (this.#rounds === 0) return undefined;
    const { model, cachedTokens, newTokens } = this.#plan;
    const rows = cachedTokens.map((_, row) => this.#median(({ cached }) => cached, { row }));
    const kept = rows.map((_, row) => row).filter((row) => row === 0 || rows[row]! > Math.max(...rows.slice(0, row)));
    return {
      model,
      repeats: this.#rounds,
      reports: { promptTokens: this.#reportsPrompt, cachedTokens: this.#reportsCached },
      droppedCachedTokens: cachedTokens.filter((_, row) => !kept.includes(row)),
      cachedTokens: kept.map((row) => rows[row]!),
      newTokens: ascending(newTokens.map((_, column) => this.#median(({ fresh }) => fresh, { column }))),
      prefillMs: kept.map((row) => newTokens.map((_, column) => this.#median(({ ms }) => ms, { row, column }))),
    };
  }

  async #round(signal: AbortSignal): Promise<readonly Sample[]> {
    const { cachedTokens, newTokens } = this.#plan;
    const samples: Sample[] = [];
    for (const [row, aimed] of cachedTokens.entries()) {
      const prefix = aimed === 0 ? undefined : probeText(nonce(), this.#words(aimed - this.#scale.head));
      if (prefix !== undefined) await this.#ask(prefix, signal);
      for (const [column, fresh] of newTokens.entries()) {
        const words = this.#words(prefix === undefined ? fresh - this.#scale.head : fresh);
        const tail = probeText(nonce(), words);
        const answer = await this.#ask(prefix === undefined ? tail : `${prefix} ${tail}`, signal);
        samples.push(this.#sample(answer, { row, column }));
      }
    }
    return samples;
  }

  #sample(answer: MeasuredAnswer, { row, column }: { readonly row: number; readonly column: number }): Sample {
    const { promptTokens, cachedTokens, ttftMs: ms } = answer;
    const { cachedTokens: rows, newTokens: columns } = this.#plan;
    this.#reportsPrompt &&= promptTokens !== undefined;
    this.#reportsCached &&= cachedTokens !== undefined;
    const cached = cachedTokens ?? rows[row]!;
    const fresh = promptTokens === undefined ? columns[column]! : Math.max(1, promptTokens - cached);
    return { row, column, cached, fresh, ms };
  }

  async #calibrate(signal: AbortSignal): Promise<void> {
    const [few, many] = CALIBRATION_WORDS;
    const short = (await this.#ask(probeText(nonce(), few), signal)).promptTokens;
    const long = (await this.#ask(probeText(nonce(), many), signal)).promptTokens;
    if (short === undefined || long === undefined || long <= short) return;
    const perWord = (long - short) / (many - few);
    this.#scale = { head: Math.max(0, short - few * perWord), perWord };
  }

  async #ask(text: string, signal: AbortSignal): Promise<MeasuredAnswer> {
    signal.throwIfAborted();
    const { model } = this.#plan;
    const body = { model, messages: [{ role: 'user', content: text }], max_tokens: 1, temperature: 0 };
    const answer = await this.#client.measureChat(body, signal);
    this.#onRequest();
    return answer;
  }

  #words(tokens: number): number {
    return Math.max(1, Math.round(tokens / this.#scale.perWord));
  }

  #median(of: (sample: Sample) => number, at: { readonly row?: number; readonly column?: number }): number {
    const { row, column } = at;
    const values = this.#samples
      .filter(
        (sample) => (row === undefined || sample.row === row) && (column === undefined || sample.column === column),
      )
      .map(of)
      .sort((a, b) => a - b);
    const middle = Math.floor(values.length / 2);
    return values.length % 2 === 1 ? values[middle]! : mean(values.slice(middle - 1, middle + 1));
  }
}

/** Columns must grow. Error: `WARMPATH_UPSTREAM_ERROR` where the engine's counts do not. */
function ascending(columns: readonly number[]): readonly number[] {
  const wrong = columns.findIndex((value, column) => column > 0 && value <= columns[column - 1]!);
  if (wrong < 0) return columns;
  const detail = `longer prompts did not have more new tokens (${columns.join(', ')}); aim at counts further apart`;
  throw new WarmpathError('WARMPATH_UPSTREAM_ERROR', { path: 'usage', detail });
}

function nonce(): string {
  return randomBytes(6).toString('hex');
}
