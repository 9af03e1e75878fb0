import { Encoder } from '@msgpack/msgpack';
import { ServedHistory } from '@warmpath/core';
import { expect, it } from 'vitest';
import { EventStream, type NumberedBatch } from '../src/engines/kv-events/event-stream.js';
import { EngineEvents } from '../src/engines/kv-residency.js';
import { chaosSeed, ROUNDS, random } from './chaos.js';

// The events of an engine on a wire that drops, repeats, reorders and garbles them. Whatever the gateway calls exact
// must be what the engine holds; what it cannot know it must not call so.

const BLOCK = 4;
const encoder = new Encoder({ useBigInt64: true });

interface HeldBlock {
  readonly hash: number;
  readonly parent: number | null;
  readonly tokens: readonly number[];
}

/** An engine that publishes what it holds, and the wire to one subscriber. */
class ChaoticEngine {
  readonly stream: EventStream;
  readonly events: EngineEvents;
  readonly #draw: (below: number) => number;
  readonly #kept: number;
  #held = new Map<number, HeldBlock>();
  #log: NumberedBatch[] = [];
  #next = 0;
  #hashes = 0;
  /** Batches that are late. */
  #late: NumberedBatch[] = [];
  #asked: (() => void)[] = [];

  constructor(draw: (below: number) => number, kept: number) {
    this.#draw = draw;
    this.#kept = kept;
    this.events = new EngineEvents({ now: () => 0, changed: () => {}, blockSize: () => {} });
    this.stream = new EventStream({
      sink: this.events,
      replay: (from) =>
        new Promise((resolve) => {
          this.#asked.push(() => resolve(this.#log.filter(({ sequence }) => sequence >= from)));
        }),
    });
  }

  /** Tokens of a prompt that the engine holds, and the tokens of that prompt. */
  prompts(): readonly (readonly number[])[] {
    return [...this.#held.values()].map((block) => this.#tokensTo(block));
  }

  blocks(): number {
    return this.#held.size;
  }

  /** The engine does something, and tells of it on the wire. */
  step(): void {
    const events: unknown[] = [];
    for (let i = 0; i <= this.#draw(3); i++) events.push(...this.#act());
    this.#publish(events, this.#draw(12));
  }

  /** The engine drops its cache, and the wire is well again. */
  clear(): void {
    this.#held.clear();
    this.#publish([['AllBlocksCleared']], 11);
  }

  /** The engine goes on, on a wire that is well. */
  calmStep(): void {
    this.#publish(this.#act(), 11);
  }

  restart(): void {
    this.#held.clear();
    this.#log = [];
    this.#next = 0;
    this.#late = [];
    this.stream.disconnected();
  }

  async settle(): Promise<void> {
    while (this.#asked.length > 0) {
      for (const answer of this.#asked.splice(0)) answer();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Batches that were held up come now. */
  deliverLate(): void {
    for (const batch of this.#late.splice(0)) this.stream.receive(batch);
  }

  #act(): unknown[] {
    const blocks = [...this.#held.values()];
    if (blocks.length > 0 && this.#draw(3) === 0) {
      const parents = new Set(blocks.map(({ parent }) => parent));
      const leaves = blocks.filter(({ hash }) => !parents.has(hash));
      const gone = leaves[this.#draw(leaves.length)]!;
      this.#held.delete(gone.hash);
      return [['BlockRemoved', [gone.hash], 'GPU']];
    }
    const parent = blocks.length > 0 && this.#draw(3) > 0 ? blocks[this.#draw(blocks.length)]!.hash : null;
    const hashes: number[] = [];
    const tokens: number[] = [];
    let before = parent;
    for (let i = 0; i <= this.#draw(4); i++) {
      const hash = ++this.#hashes;
      const own = Array.from({ length: BLOCK }, () => this.#draw(1_000_000));
      this.#held.set(hash, { hash, parent: before, tokens: own });
      hashes.push(hash);
      tokens.push(...own);
      before = hash;
    }
    return [['BlockStored', hashes, parent, tokens, BLOCK, null, 'GPU']];
  }

  #publish(events: unknown[], fate: number): void {
    const batch = { sequence: this.#next++, payload: encoder.encode([0.5, events, 0]) };
    this.#log.push(batch);
    if (this.#log.length > this.#kept) this.#log.shift();
    if (fate === 0) return;
    if (fate === 1) this.#late.push(batch);
    else if (fate === 2) this.stream.receive({ ...batch, payload: this.#garbled(batch.payload, events) });
    else {
      this.stream.receive(batch);
      if (fate === 3) this.stream.receive({ ...batch, payload: batch.payload.slice() });
      if (fate === 4) this.deliverLate();
    }
  }

  /** Cut, made unreadable, or with one field of one event that is not what it should be. */
  #garbled(payload: Uint8Array, events: readonly unknown[]): Uint8Array {
    const how = this.#draw(4);
    if (how === 0) return payload.slice(0, -1 - this.#draw(payload.length - 1));
    if (how === 1) return new Uint8Array(9).fill(0xc1);
    const garbled = structuredClone(events) as unknown[][];
    const event = garbled[this.#draw(garbled.length)]!;
    const names = event[0] === 'BlockStored' ? [0, 1, 2, 3, 4, 6] : event[0] === 'BlockRemoved' ? [0, 1, 2] : [0];
    event[names[this.#draw(names.length)]!] = [7.5, ['x'], { x: 1 }, [null]][this.#draw(4)];
    return encoder.encode([0.5, garbled, 0]);
  }

  #tokensTo(last: HeldBlock): number[] {
    const tokens: number[] = [];
    for (let block: HeldBlock | undefined = last; block !== undefined; block = this.#held.get(block.parent ?? -1)) {
      tokens.unshift(...block.tokens);
    }
    return tokens;
  }
}

/** What the gateway would say of each prompt that the engine holds whole. */
function expectSame(engine: ChaoticEngine): void {
  const { residency } = engine.events;
  expect(residency.blocks).toBe(engine.blocks());
  const history = new ServedHistory();
  for (const [place, tokens] of engine.prompts().entries()) {
    const document = { id: `d${place}`, key: `d${place}`, content: '', tokens: tokens.length };
    const request = { documents: [document], preamble: { key: `p${place}`, tokens: 0 } };
    residency.learn(history, request as never, { tokens, preambleEnd: 0, documentEnds: [tokens.length] });
    expect(residency.cachedTokens(history, request as never)).toBe(tokens.length);
  }
}

it('calls a view exact only if it is what the engine holds, and finds it again after all faults', async () => {
  const seed = chaosSeed();
  let [exact, lost] = [0, 0];
  for (let round = 0; round < 20 * ROUNDS; round++) {
    const draw = random(seed + round);
    // Some engines keep little.
    const engine = new ChaoticEngine(draw, [1_000, 20, 3][round % 3]!);
    for (let step = 0; step < 60; step++) {
      engine.step();
      if (draw(25) === 0) engine.restart();
      if (draw(4) === 0) await engine.settle();
    }
    engine.deliverLate();
    // What was dropped at the very end shows with the next number.
    for (let step = 0; step < 3; step++) engine.calmStep();
    await engine.settle();
    const where = `round ${round} of seed ${seed}`;
    if (engine.events.residency.isExact) {
      exact++;
      expect(engine.events.residency.blocks, where).toBe(engine.blocks());
      expectSame(engine);
    } else {
      lost++;
      engine.clear();
      engine.calmStep();
      await engine.settle();
      expect(engine.events.residency.isExact, where).toBe(true);
      expectSame(engine);
    }
  }
  expect(exact).toBeGreaterThan(0);
  expect(lost).toBeGreaterThan(0);
});
