import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { EngineRouter, type RouteCandidate } from '@warmpath/core/internal';
import type { TranslatedApi } from '@warmpath/translate';
import type { EngineSettings } from '../config/schema.js';
import type { Caller } from '../intake/authenticate.js';
import type { ChosenEngine } from '../shapes/shapes.js';
import { Engine, type EngineParts } from './engine.js';
import type { Way } from './engine-apis.js';
import type { EngineReport } from './engine-probe.js';

/** What decides where a request goes. */
export interface RoutedRequest {
  /** The model that it names; empty where it names none, or nobody has looked. */
  readonly model: () => string;
  /** Estimated tokens of its prompt. */
  readonly promptTokens: number;
  /** Estimated tokens of it that an engine is believed to hold. */
  readonly cachedTokens: (engine: Engine) => number;
  /** Engines that failed to answer it. */
  readonly tried: readonly Engine[];
}

const NONE: readonly never[] = [];

/**
 * The engines behind the gateway: one or several. Each request goes where it will be answered first, by what each
 * engine holds of it and has to do (core's `EngineRouter`), among those that serve its model, are not drained and not
 * ejected. Where all of these are ejected, they get requests all the same. With one engine nothing is weighed.
 */
export class Engines {
  readonly #parts: Omit<EngineParts, 'isSpare' | 'quiet'>;
  readonly #rule = new EngineRouter();
  /** In ascending order of their numbers; those that drain among them. */
  #all: readonly Engine[] = NONE;
  #opened = 0;
  #tell: ((report: EngineReport) => void) | undefined;
  #isWatched = false;
  /** Called for one that is gone, when it has answered everything. */
  readonly #gone: (engine: Engine) => void;
  #reloading: Promise<void> = Promise.resolve();

  private constructor(parts: Omit<EngineParts, 'isSpare' | 'quiet'>, gone: (engine: Engine) => void) {
    this.#parts = parts;
    this.#gone = gone;
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID`: see `Engine.open`. */
  static async open(
    settings: readonly EngineSettings[],
    parts: Omit<EngineParts, 'isSpare' | 'quiet'>,
    gone: (engine: Engine) => void,
  ): Promise<Engines> {
    const engines = new Engines(parts, gone);
    await engines.#replace(settings);
    return engines;
  }

  /** All of them, those that drain included, in the order of their numbers. */
  get all(): readonly Engine[] {
    return this.#all;
  }

  /** The engine, where there is only one to choose. */
  get only(): Engine | undefined {
    const [first] = this.#all;
    return this.#all.length === 1 && !first!.isDraining && first!.models === undefined ? first : undefined;
  }

  /** Prompts that engines were given and have not begun to answer. */
  get prefilling(): number {
    return this.#all.reduce((sum, engine) => sum + engine.prefilling, 0);
  }

  find(name: string): Engine | undefined {
    return this.#all.find((engine) => engine.name === name && !engine.isRemoved);
  }

  /**
   * Where a request goes; the engine counts as having got it.
   *
   * @throws WarmpathError `WARMPATH_MODEL_NOT_FOUND`, `WARMPATH_UPSTREAM_UNREACHABLE` where every engine is drained.
   */
  route(request: RoutedRequest): { readonly engine: Engine; readonly route: ChosenEngine } {
    const engines = this.#available(request.model, request.tried);
    const candidates: RouteCandidate[] = engines.map(({ number, pendingTokens, weight }) => {
      return { engine: number, pendingTokens, weight };
    });
    const { promptTokens } = request;
    const { place, newTokens } = this.#rule.choose(candidates, promptTokens, (place) =>
      Math.max(1, promptTokens - request.cachedTokens(engines[place]!)),
    );
    const engine = engines[place]!;
    const { name, pendingTokens } = engine;
    engine.health.took();
    const tried = request.tried.length;
    return { engine, route: { name, candidates: engines.length, newTokens, pendingTokens, tried } };
  }

  /** Those that may get a request for a model, at least one. Errors: as `route`. */
  takers(model: () => string): readonly Engine[] {
    return this.#available(model, NONE);
  }

  /** The engine for what is no prompt and changes nothing: always the same one while it is well. Errors: as `route`. */
  first(model: () => string = noModel): Engine {
    return this.only ?? this.#available(model, NONE)[0]!;
  }

  /**
   * Whether a request that failed on these engines can go to another one. `isUnsent`: none of them got it, so that
   * even one that is ejected may be tried rather than none.
   */
  hasOther(model: () => string, tried: readonly Engine[], isUnsent: boolean): boolean {
    return this.#all.some((engine) => {
      const mayTry = !engine.isDraining && !tried.includes(engine) && (isUnsent || engine.health.isAvailable);
      return mayTry && this.#serves(engine, model);
    });
  }

  /** How a request in that API goes to the engines: as it is only if all of them speak it. Never rejects. */
  way(api: TranslatedApi, caller: Pick<Caller, 'tenant'>, headers: IncomingHttpHeaders): Way | Promise<Way> {
    const { only } = this;
    if (only !== undefined) return only.apis.way(api, caller, headers);
    const asked = this.#all.filter((engine) => !engine.isDraining && engine.health.state === 'up');
    const ways = asked.map((engine) => engine.apis.way(api, caller, headers));
    const together = (found: readonly Way[]): Way => (found.includes('translate') ? 'translate' : 'native');
    return ways.every((way) => typeof way === 'string') ? together(ways) : Promise.all(ways).then(together);
  }

  /** Looks at the engines from now on: `tell` hears what is at each address. Several are looked at in any case. */
  watch(tell: ((report: EngineReport) => void) | undefined): void {
    this.#tell = tell;
    this.#isWatched = true;
    for (const engine of this.#all) this.#watchOne(engine);
  }

  /** No new requests for an engine; those that wait for it go elsewhere. */
  drain(engine: Engine): void {
    if (engine.isDraining) return;
    engine.isDraining = true;
    engine.changed({ kind: 'draining' });
    this.moveWaiting(engine);
  }

  resume(engine: Engine): void {
    if (!engine.isDraining || engine.isRemoved) return;
    engine.isDraining = false;
    engine.changed({ kind: 'resumed' });
  }

  /**
   * Takes another list of engines: new ones are opened first, then those that are not listed any more drain and go. Of
   * one that stays, weight and models may change. Errors: as `open`; nothing has changed then.
   */
  reload(settings: readonly EngineSettings[]): Promise<void> {
    const reloaded = this.#reloading.then(() => this.#replace(settings));
    this.#reloading = reloaded.catch(() => {});
    return reloaded;
  }

  /** Cuts what is under way. */
  async close(): Promise<void> {
    await this.#reloading;
    await Promise.all(this.#all.map((engine) => engine.close()));
  }

  async #replace(settings: readonly EngineSettings[]): Promise<void> {
    const isFirst = this.#all.length === 0;
    const kept = new Map<EngineSettings, Engine>();
    for (const wanted of settings) {
      const engine = this.#all.find((each) => !each.isRemoved && each.isOf(wanted));
      if (engine !== undefined) kept.set(wanted, engine);
    }
    const opened: Engine[] = [];
    try {
      for (const wanted of settings) {
        if (kept.has(wanted)) continue;
        opened.push(await Engine.open(this.#opened++, wanted, this.#engineParts()));
      }
    } catch (error) {
      for (const engine of opened) await engine.close();
      throw error;
    }
    const stays = new Set(kept.values());
    const removed = this.#all.filter((engine) => !stays.has(engine) && !engine.isRemoved);
    this.#all = [...this.#all, ...opened];
    for (const [wanted, engine] of kept) if (engine.update(wanted)) engine.changed({ kind: 'changed' });
    for (const engine of opened) {
      if (!isFirst) engine.changed({ kind: 'added' });
      if (this.#isWatched) this.#watchOne(engine);
    }
    for (const engine of removed) this.#remove(engine);
  }

  #engineParts(): EngineParts {
    return {
      ...this.#parts,
      isSpare: (engine) => this.#all.some((each) => each !== engine && !each.isDraining && each.health.state === 'up'),
      changed: (engine, change) => {
        this.#parts.changed(engine, change);
        if (change.kind === 'ejected') this.moveWaiting(engine);
      },
      quiet: (engine) => this.#drained(engine),
    };
  }

  /** What waits for an engine goes elsewhere, where there is another one. */
  moveWaiting(engine: Engine): void {
    for (const dispatch of engine.queue.takeAll()) dispatch.moved();
  }

  #watchOne(engine: Engine): void {
    const isOne = this.#all.length === 1;
    if (isOne && this.#tell === undefined) return;
    engine.watch(this.#tell ?? (() => {}), !isOne);
  }

  #remove(engine: Engine): void {
    engine.isRemoved = true;
    engine.rest();
    this.drain(engine);
    this.#drained(engine);
  }

  /** One that is not listed any more goes when it has answered everything. */
  #drained(engine: Engine): void {
    if (!engine.isRemoved || !engine.isQuiet || !this.#all.includes(engine)) return;
    this.#all = this.#all.filter((each) => each !== engine);
    this.#rule.forget(engine.number);
    this.#gone(engine);
    engine.changed({ kind: 'removed' });
    // What is under way in its events is of no use any more.
    void engine.close();
  }

  /** Those that may get a request, at least one. */
  #available(model: () => string, tried: readonly Engine[]): readonly Engine[] {
    const takers = this.#all.filter((engine) => !engine.isDraining && this.#serves(engine, model));
    if (takers.length === 0) throw this.#nobody(model);
    const left = takers.filter((engine) => !tried.includes(engine));
    const well = left.filter(({ health, queue }) => health.isAvailable && !queue.isFull);
    if (well.length > 0) return well;
    const roomless = left.filter(({ health }) => health.isAvailable);
    if (roomless.length > 0) return roomless;
    // Better a request that may fail than one that does for certain.
    return left.length > 0 ? left : takers;
  }

  /** The model is read only where it matters. */
  #serves(engine: Engine, model: () => string): boolean {
    return engine.models === undefined || engine.serves(model());
  }

  #nobody(model: () => string): WarmpathError {
    const isServed = this.#all.some((engine) => !engine.isRemoved && this.#serves(engine, model));
    const code: ErrorCode = isServed ? 'WARMPATH_UPSTREAM_UNREACHABLE' : 'WARMPATH_MODEL_NOT_FOUND';
    if (isServed) return new WarmpathError(code, { detail: 'Every engine for this request is being drained.' });
    return new WarmpathError(code, { path: 'model', detail: 'No engine behind this gateway serves that model.' });
  }
}

function noModel(): string {
  return '';
}
