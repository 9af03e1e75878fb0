import type { WarmpathError } from '@warmpath/core';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { EngineLoop } from '../../src/loop/engine-loop.js';
import type { GenerationHandle, GenerationRequest, GenerationResult } from '../../src/loop/generation.js';
import type { EngineLoopOptions } from '../../src/loop/loop-options.js';
import { GenerationTask } from '../../src/loop/task.js';
import { NativeContext } from '../../src/native/context.js';
import { verifyCaches } from '../cache/hierarchy-check.js';
import { ExactContext, exactGrammars, exactLogits, exactModel, noBindings } from '../support/exact-engine.js';

verifyCaches();

// So few that leaves must give theirs back while requests run.
vi.mock('../../src/native/sequence-ids.js', async (original) => ({
  ...(await original<object>()),
  SEQUENCE_IDS: [1, 2, 3, 4, 5, 6, 7, 8, 9],
}));

/** Schedules that are played; `WARMPATH_INTERLEAVINGS` plays more of them. */
const SCHEDULES = Number(process.env.WARMPATH_INTERLEAVINGS ?? runs(400));

/** What comes from outside, before a step or while its decode is in flight. */
type Event =
  | { readonly kind: 'submit'; readonly request: Draft }
  | { readonly kind: 'abort'; readonly which: number }
  /** Decodes until the next event. */
  | { readonly kind: 'steps'; readonly count: number }
  /** The decode in flight fails, as one does for which there is no memory. */
  | { readonly kind: 'failure' };

interface Draft {
  readonly fragments: readonly number[];
  readonly cut: number;
  readonly isSegmented: boolean;
  readonly salt: number;
  readonly maxTokens: number;
  readonly isStreamed: boolean;
  readonly priority: number;
  readonly temperature: number;
  readonly topP: number;
  readonly seed: number;
  readonly stops: readonly string[];
  readonly ignoreEndOfGeneration: boolean;
  readonly hasGrammar: boolean;
}

const draft: fc.Arbitrary<Draft> = fc.record({
  fragments: fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 4 }),
  cut: fc.nat({ max: 6 }),
  isSegmented: fc.boolean(),
  salt: fc.constantFrom(0, 0, 0, 1),
  maxTokens: fc.constantFrom(0, 1, 5, 20, 30, 40),
  isStreamed: fc.boolean(),
  priority: fc.constantFrom(0, 0, 0, 1, 7),
  temperature: fc.constantFrom(0, 0.7, 1),
  topP: fc.constantFrom(1, 1, 0.8),
  seed: fc.nat({ max: 3 }),
  stops: fc.constantFrom([], [], ['a1', '7']),
  ignoreEndOfGeneration: fc.boolean(),
  hasGrammar: fc.boolean(),
});

const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('submit' as const), request: draft }) },
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('steps' as const), count: fc.integer({ min: 1, max: 12 }) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('abort' as const), which: fc.nat({ max: 40 }) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('failure' as const) }) },
);

const settings = fc.record({
  cells: fc.constantFrom(48, 64, 96),
  batchTokens: fc.constantFrom(8, 13, 32),
  maxRunning: fc.integer({ min: 1, max: 6 }),
  hostTierBytes: fc.constantFrom(0, 300, 1_500, 100_000),
});

/** A request, what it has said so far, and how it ended. */
interface Sent {
  readonly request: GenerationRequest;
  readonly handle: GenerationHandle;
  text: string;
  end: GenerationResult | 'failed' | 'aborted' | undefined;
}

const FRAGMENT_TOKENS = [5, 9, 14, 3];

function requestOf(draft: Draft, id: string, most: number): GenerationRequest {
  let end = 0;
  const boundaries = draft.fragments.map((fragment) => (end += FRAGMENT_TOKENS[fragment]!));
  const tokens = draft.fragments.flatMap((fragment) =>
    Array.from({ length: FRAGMENT_TOKENS[fragment]! }, (_, index) => (fragment * 11 + index * 5) % 36),
  );
  const prompt = tokens.slice(0, Math.max(1, Math.min(tokens.length - draft.cut, most - draft.maxTokens)));
  const { maxTokens, seed, stops, ignoreEndOfGeneration, isStreamed, priority } = draft;
  return {
    id,
    prompt,
    ...(draft.isSegmented && { boundaries: boundaries.filter((boundary) => boundary < prompt.length) }),
    ...(draft.salt > 0 && { salt: `tenant ${draft.salt}` }),
    maxTokens,
    isStreamed,
    priority,
    sampling: { temperature: draft.temperature, topP: draft.topP },
    seed,
    stops,
    ignoreEndOfGeneration,
    ...(draft.hasGrammar && { grammar: String(draft.seed + 1) }),
  };
}

/** What the request says when nothing else runs, nothing is cached and nothing goes wrong. */
function alone(request: GenerationRequest): { text: string; tokens: number } {
  let text = '';
  const listener = {
    onText: (piece: string) => {
      text += piece;
    },
    onFinish: () => undefined,
    onError: () => undefined,
  };
  const task = new GenerationTask(request, listener, 0);
  while (
    request.maxTokens > 0 &&
    task.advance(exactLogits(task.tokens), exactModel.vocabulary, 4_096, 0) === undefined
  ) {}
  task.freeGrammar();
  return { text, tokens: task.generated };
}

/** Everything that is due happens: all that the loop does between two decodes is done without waiting for anything. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A loop, and whoever sends to it and decides when a decode ends. */
class Player {
  readonly sent: Sent[] = [];
  /** Requests that were heard of after their end. */
  readonly late: string[] = [];
  readonly counts = { preemptions: 0, finished: 0, cachedTokens: 0, restoredTokens: 0, failed: 0 };
  readonly #context: ExactContext;
  readonly #loop: EngineLoop;
  #failure: WarmpathError | undefined;

  private constructor(context: ExactContext, loop: EngineLoop) {
    this.#context = context;
    this.#loop = loop;
  }

  static async start(options: Partial<EngineLoopOptions> & { cells: number; batchTokens: number; maxRunning: number }) {
    const context = new ExactContext(options.cells);
    vi.spyOn(NativeContext, 'create').mockResolvedValueOnce(context.asNative);
    const ignore = (): void => undefined;
    const player: { current?: Player } = {};
    const onPreemption = (): void => {
      player.current!.counts.preemptions++;
    };
    const loop = await EngineLoop.start({
      bindings: noBindings,
      model: exactModel,
      name: 'test',
      queueLimit: 1_000,
      threads: 1,
      observer: { onPrompt: ignore, onStep: ignore, onToken: ignore, onPreemption, onEnd: ignore },
      ...options,
    });
    player.current = new Player(context, loop);
    void loop.failed.then((error) => {
      player.current!.#failure = error;
    });
    await settled();
    return player.current;
  }

  async play(event: Event): Promise<void> {
    switch (event.kind) {
      case 'submit':
        this.#submit(event.request);
        break;
      case 'abort': {
        const sent = this.sent[event.which % Math.max(1, this.sent.length)];
        sent?.handle.abort();
        if (sent !== undefined) {
          // Nothing may come of it any more, not even of the step that is in flight.
          sent.end ??= 'aborted';
        }
        break;
      }
      case 'failure':
        if (this.#context.isDecoding) {
          this.#context.finishDecode(-3);
        }
        break;
      case 'steps':
        for (let step = 0; step < event.count && this.#context.isDecoding; step++) {
          await this.#step();
        }
    }
    // Half of what comes, comes while a decode is in flight; when nothing runs, it begins now.
    if (!this.#context.isDecoding) {
      await this.#settled();
    }
  }

  /** Lets everything finish and looks at what is left. */
  async end(): Promise<void> {
    await this.#settled();
    while (this.#context.isDecoding) {
      await this.#step();
    }
    const { running, waiting, leases, usedCells, cachedCells, host } = this.#loop.stats;
    expect({ running, waiting, leases }).toEqual({ running: 0, waiting: 0, leases: 0 });
    expect([usedCells, cachedCells]).toEqual([this.#context.liveCells, this.#context.liveCells]);
    expect(exactGrammars.open).toBe(0);
    this.counts.restoredTokens = host?.restoredTokens ?? 0;
    await this.#loop.close(0);
  }

  async #step(): Promise<void> {
    this.#context.finishDecode();
    await this.#settled();
  }

  /** Nothing may come after the end. What throws here would end the request alone. */
  #noteLate({ request, end }: Sent): void {
    if (end !== undefined) {
      this.late.push(request.id);
    }
  }

  async #settled(): Promise<void> {
    await settled();
    if (this.#failure !== undefined) {
      throw this.#failure;
    }
  }

  #submit(request: Draft): void {
    const drawn = requestOf(request, `request ${this.sent.length}`, this.#loop.contextTokens);
    const handle = this.#loop.submit(drawn, {
      onText: (text) => {
        this.#noteLate(sent);
        sent.text += text;
      },
      onFinish: (result) => {
        this.#noteLate(sent);
        sent.end = result;
        this.counts.finished++;
        this.counts.cachedTokens += result.cachedTokens;
      },
      onError: () => {
        this.#noteLate(sent);
        sent.end = 'failed';
        this.counts.failed++;
      },
    });
    const sent: Sent = { request: drawn, handle, text: '', end: undefined };
    this.sent.push(sent);
  }
}

function check({ request, text, end }: Sent): void {
  const expected = alone(request);
  expect(end).toBeDefined();
  if (end === undefined || end === 'failed' || end === 'aborted') {
    expect(expected.text.startsWith(text)).toBe(true);
    return;
  }
  expect(text).toBe(expected.text);
  expect(end.completionTokens).toBe(expected.tokens);
  expect(end.cachedTokens).toBeLessThanOrEqual(request.prompt.length - (request.maxTokens === 0 ? 0 : 1));
}

describe('whatever runs beside a request', () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('it says what it says alone: its tokens, its random numbers and its text are its own', async () => {
    let nowMs = 0;
    vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += 0.37 + (nowMs % 1.3)));
    const total = { preemptions: 0, finished: 0, cachedTokens: 0, restoredTokens: 0, failed: 0 };
    await fc.assert(
      fc.asyncProperty(settings, fc.array(event, { minLength: 10, maxLength: 60 }), async (options, events) => {
        nowMs = 0;
        const player = await Player.start(options);
        for (const each of events) {
          await player.play(each);
        }
        await player.end();
        expect(player.late).toEqual([]);
        for (const sent of player.sent) {
          check(sent);
        }
        for (const key of Object.keys(total) as (keyof typeof total)[]) {
          total[key] += player.counts[key];
        }
      }),
      { seed: 41, numRuns: SCHEDULES },
    );
    expect(Math.min(...Object.values(total))).toBeGreaterThan(SCHEDULES / 4);
  });
});
