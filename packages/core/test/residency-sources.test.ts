import '../../../test/suite.js';
import { arrange, observe, type Preamble, ServedHistory } from '../src/index.js';
import { EventResidency, type KvEvent, PromptSlots, type ServedRequest } from '../src/internal.js';
import {
  BLOCK_TOKENS,
  residencySourceCases,
  type ServedOnce,
  type SourceTwin,
} from './conformance/residency-source.cases.js';
import { documentsOf } from './served.js';

const PREAMBLE: Preamble = { key: 'preamble', tokens: 40 };
const QUESTION_TOKENS = 24;

/** An engine that caches blocks and drops the end of what was used least recently. */
class BlockEngine {
  readonly events: KvEvent[] = [];
  /** By number, in order of last use. */
  readonly #blocks = new Map<string, true>();
  readonly #capacity: number;

  constructor(capacityTokens: number) {
    this.#capacity = Math.floor(capacityTokens / BLOCK_TOKENS);
  }

  /** Tokens of whole blocks that are there. */
  held(tokens: readonly number[]): number {
    const missing = blockNames(tokens).findIndex((name) => !this.#blocks.has(name));
    return BLOCK_TOKENS * (missing < 0 ? Math.floor(tokens.length / BLOCK_TOKENS) : missing);
  }

  /** Tokens that were there. */
  serve(tokens: readonly number[]): number {
    const names = blockNames(tokens);
    let held = 0;
    while (held < names.length && this.#blocks.has(names[held]!)) held++;
    for (const name of names.toReversed()) {
      this.#blocks.delete(name);
      this.#blocks.set(name, true);
    }
    if (held < names.length) {
      this.events.push({
        kind: 'stored',
        tier: 'device',
        hashes: names.slice(held),
        parent: names[held - 1],
        tokens: tokens.slice(held * BLOCK_TOKENS, names.length * BLOCK_TOKENS),
        blockSize: BLOCK_TOKENS,
      });
    }
    const gone = [...this.#blocks.keys()].slice(0, Math.max(0, this.#blocks.size - this.#capacity));
    for (const name of gone) this.#blocks.delete(name);
    if (gone.length > 0) this.events.push({ kind: 'removed', tier: 'device', hashes: gone });
    return Math.min(held * BLOCK_TOKENS, tokens.length - 1);
  }

  clear(): void {
    this.#blocks.clear();
    this.events.push({ kind: 'cleared' });
  }
}

function blockNames(tokens: readonly number[]): string[] {
  let name = '';
  return Array.from({ length: Math.floor(tokens.length / BLOCK_TOKENS) }, (_, place) => {
    name = String(hash(name + tokens.slice(place * BLOCK_TOKENS, (place + 1) * BLOCK_TOKENS).join()));
    return `${place}-${name}`;
  });
}

function hash(text: string): number {
  let value = 7;
  for (let place = 0; place < text.length; place++) value = (value * 31 + text.charCodeAt(place)) % 2 ** 42;
  return value;
}

/** Tokens of a text that no other key has. */
function tokensOf(key: string, count: number): number[] {
  const first = hash(key) % 2 ** 30;
  return Array.from({ length: count }, (_, place) => first + place);
}

/** What the engine tells, and how it is heard. */
type Report = 'nothing' | 'counts' | 'events';

/** A gateway before an engine of blocks. */
class BlockSource implements SourceTwin {
  readonly history: ServedHistory;
  readonly #engine: BlockEngine;
  readonly #events: EventResidency | undefined;
  readonly #report: Report;
  #heard = 0;
  #number = 0;

  constructor(capacityTokens: number, report: Report) {
    this.#engine = new BlockEngine(capacityTokens);
    this.#report = report;
    this.#events = report === 'events' ? new EventResidency() : undefined;
    this.history = new ServedHistory(this.#events && { events: this.#events });
    // The block size is known with the first event.
    this.#events?.begin(0);
    if (this.#events !== undefined) this.serveAnother(BLOCK_TOKENS);
  }

  serve(ids: readonly string[]): ServedOnce {
    const predicted = this.predict(ids);
    const arrangement = this.#arrange(ids);
    observe({ kind: 'dispatched', arrangement, now: 0 }, this.history);
    const texts = [...tokensOf('preamble', PREAMBLE.tokens)];
    const documentEnds = arrangement.documents.map(({ key, tokens }) => {
      for (const token of tokensOf(key, tokens)) texts.push(token);
      return texts.length;
    });
    const prompt = [...texts, ...tokensOf(`question ${++this.#number}`, QUESTION_TOKENS)];
    const cached = this.#engine.serve(prompt);
    observe({ kind: 'completed', arrangement, now: 0, ...this.#told(prompt.length, cached) }, this.history);
    if (this.#events !== undefined) {
      const learned = { tokens: prompt, preambleEnd: PREAMBLE.tokens, documentEnds };
      this.#hear();
      this.#events.learn(this.history, arrangement, learned);
      this.#events.reconcile(this.history, arrangement);
    }
    return { predicted, cached, promptTokens: prompt.length };
  }

  serveAnother(tokens: number): void {
    this.#engine.serve(tokensOf(`another ${++this.#number}`, tokens));
    this.#hear();
  }

  restart(): void {
    this.#engine.clear();
    this.#hear();
  }

  predict(ids: readonly string[]): number {
    const arrangement = this.#arrange(ids);
    return this.#events?.cachedTokens(this.history, arrangement) ?? arrangement.predictedCachedTokens;
  }

  #arrange(ids: readonly string[]) {
    return arrange({ documents: documentsOf(ids), preamble: PREAMBLE, policy: 'retrieval' }, this.history, 0);
  }

  #told(promptTokens: number, cachedTokens: number) {
    return this.#report === 'counts' ? { promptTokens, cachedTokens } : {};
  }

  #hear(): void {
    if (this.#events === undefined) return;
    for (const event of this.#engine.events.slice(this.#heard)) this.#events.apply(event, 0);
    this.#heard = this.#engine.events.length;
  }
}

/** A gateway before a llama-server of one tenant, which is followed by its rules. */
class SlotSource implements SourceTwin {
  readonly history: ServedHistory;
  readonly #engine: PromptSlots;
  #number = 0;

  constructor(capacityTokens: number) {
    this.#engine = new PromptSlots({ savedTokens: capacityTokens });
    this.history = new ServedHistory({
      slots: { prompts: new PromptSlots({ savedTokens: capacityTokens }), name: 'tenant' },
    });
  }

  serve(ids: readonly string[]): ServedOnce {
    const predicted = this.predict(ids);
    const arrangement = arrange(
      { documents: documentsOf(ids), preamble: PREAMBLE, policy: 'retrieval' },
      this.history,
      0,
    );
    observe({ kind: 'dispatched', arrangement, now: 0 }, this.history);
    const question = { key: `question ${++this.#number}`, tokens: QUESTION_TOKENS };
    const prompt = [...spansOf(arrangement), question];
    const promptTokens = prompt.reduce((sum, { tokens }) => sum + tokens, 0);
    const use = this.#engine.begin(prompt)!;
    use.hold(prompt);
    use.release();
    const { cachedTokens: cached } = use;
    observe({ kind: 'completed', arrangement, now: 0, promptTokens, cachedTokens: cached }, this.history);
    return { predicted, cached, promptTokens };
  }

  serveAnother(tokens: number): void {
    const prompt = [{ key: `another ${++this.#number}`, tokens }];
    const use = this.#engine.begin(prompt)!;
    use.hold(prompt);
    use.release();
  }

  restart(): void {
    this.#engine.clear();
  }

  predict(ids: readonly string[]): number {
    return arrange({ documents: documentsOf(ids), preamble: PREAMBLE, policy: 'retrieval' }, this.history, 0)
      .predictedCachedTokens;
  }
}

function spansOf({ documents }: ServedRequest) {
  return [PREAMBLE, ...documents].map(({ key, tokens }) => ({ key, tokens }));
}

residencySourceCases('history', (tokens) => new BlockSource(tokens, 'nothing'), { meanErrorUnderPressure: 200 });
residencySourceCases('watermark', (tokens) => new BlockSource(tokens, 'counts'), { meanErrorUnderPressure: 120 });
residencySourceCases('modelled', (tokens) => new SlotSource(tokens), { meanErrorUnderPressure: 100 });
residencySourceCases('exact', (tokens) => new BlockSource(tokens, 'events'), {
  within: BLOCK_TOKENS,
  meanErrorUnderPressure: BLOCK_TOKENS / 2,
});
