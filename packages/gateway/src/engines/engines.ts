import type { IncomingHttpHeaders } from 'node:http';
import { type ErrorCode, WarmpathError } from '@warmpath/core';
import { EngineRouter, type RouteCandidate } from '@warmpath/core/internal';
import type { TranslatedApi } from '@warmpath/translate';
import type { EngineSettings } from '../config/schema.js';
import type { Caller } from '../intake/authenticate.js';
import type { ChosenEngine } from '../shapes/shapes.js';
import { Engine, type EngineParts } from './engine.js';
import type { ApiRoute } from './engine-apis.js';
import type { EngineReport } from './engine-probe.js';

/** What routing knows of a request. */
export interface RoutedRequest {
  /** The model that the request names; empty if it names none. */
  readonly model: () => string;
  /** Estimated tokens of its prompt. */
  readonly promptTokens: number;
  /** Estimated tokens of the prompt that an engine should have cached. */
  readonly cachedTokens: (engine: Engine) => number;
  /** Engines that failed to answer it. */
  readonly tried: readonly Engine[];
}

const NONE: readonly never[] = [];

/**
 * The engines behind the gateway. Each request goes to the engine that should answer first, by cached tokens and
 * pending work (core's `EngineRouter`). Engines that do not serve its model, are drained or ejected are left out. If
 * all others are ejected, they get requests anyway.
 */
export class Engines {
  readonly #parts: Omit<EngineParts, 'hasReplacement' | 'drained'>;
  readonly #rule = new EngineRouter();
  /** In ascending order of their numbers, draining ones included. */
  #all: readonly Engine[] = NONE;
  #opened = 0;
  #report: ((report: EngineReport) => void) | undefined;
  #isWatched = false;
  /** Called for a removed engine when it has answered all its requests. */
  readonly #removed: (engine: Engine) => void;
  #reloading: Promise<void> = Promise.resolve();

  private constructor(parts: Omit<EngineParts, 'hasReplacement' | 'drained'>, removed: (engine: Engine) => void) {
    this.#parts = parts;
    this.#removed = removed;
  }

  /** @throws WarmpathError `WARMPATH_CONFIG_INVALID`: see `Engine.open`. */
  static async open(
    settings: readonly EngineSettings[],
    parts: Omit<EngineParts, 'hasReplacement' | 'drained'>,
    removed: (engine: Engine) => void,
  ): Promise<Engines> {
    const engines = new Engines(parts, removed);
    await engines.#replace(settings);
    return engines;
  }

  /** All engines in the order of their numbers, draining ones included. */
  get all(): readonly Engine[] {
    return this.#all;
  }

  /** The only engine; `undefined` if there are several. */
  get only(): Engine | undefined {
    const [first] = this.#all;
    return this.#all.length === 1 && !first!.isDraining && first!.models === undefined ? first : undefined;
  }

  /** Prompts that engines have got and not begun to answer. */
  get prefilling(): number {
    return this.#all.reduce((sum, engine) => sum + engine.prefilling, 0);
  }

  find(name: string): Engine | undefined {
    return this.#all.find((engine) => engine.name === name && !engine.isRemoved);
  }

  /**
   * Chooses the engine of a request, and counts the request for it.
   *
   * @throws WarmpathError `WARMPATH_MODEL_NOT_FOUND`; `WARMPATH_UPSTREAM_UNREACHABLE` if every engine is drained
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

  /** The engines that may get a request for a model, at least one. Errors: as `route`. */
  takers(model: () => string): readonly Engine[] {
    return this.#available(model, NONE);
  }

  /**
   * The engine for requests that are no prompts and change nothing: the same one while it is well. Errors: as `route`.
   */
  first(model: () => string = noModel): Engine {
    return this.only ?? this.#available(model, NONE)[0]!;
  }

  /**
   * Whether another engine can get a request that failed on these engines. `isUnsent`: none of them received it, so an
   * ejected engine may be tried, too.
   */
  hasOther(model: () => string, tried: readonly Engine[], isUnsent: boolean): boolean {
    return this.#all.some((engine) => {
      const mayTry = !engine.isDraining && !tried.includes(engine) && (isUnsent || engine.health.isAvailable);
      return mayTry && this.#serves(engine, model);
    });
  }

  /** How a request of this API reaches the engines: as it is only if all of them speak the API. Never rejects. */
  apiRoute(
    api: TranslatedApi,
    caller: Pick<Caller, 'tenant'>,
    headers: IncomingHttpHeaders,
  ): ApiRoute | Promise<ApiRoute> {
    const { only } = this;
    if (only !== undefined) return only.apis.routeOf(api, caller, headers);
    const asked = this.#all.filter((engine) => !engine.isDraining && engine.health.state === 'up');
    const routes = asked.map((engine) => engine.apis.routeOf(api, caller, headers));
    const together = (found: readonly ApiRoute[]): ApiRoute => (found.includes('translate') ? 'translate' : 'native');
    return routes.every((route) => typeof route === 'string') ? together(routes) : Promise.all(routes).then(together);
  }

  /**
   * Watches the engines from now on. `report` is called with what is at each address. Several engines are always
   * watched.
   */
  watch(report: ((report: EngineReport) => void) | undefined): void {
    this.#report = report;
    this.#isWatched = true;
    for (const engine of this.#all) this.#watchOne(engine);
  }

  /** An engine gets no new requests. Waiting ones go to other engines. */
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
   * Replaces the list of engines. New ones are opened first; removed ones drain and are closed. Weight and models of
   * the others may change. Errors: as `open`; then nothing has changed.
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
      hasReplacement: (engine) =>
        this.#all.some((each) => each !== engine && !each.isDraining && each.health.state === 'up'),
      changed: (engine, change) => {
        this.#parts.changed(engine, change);
        if (change.kind === 'ejected') this.moveWaiting(engine);
      },
      drained: (engine) => this.#drained(engine),
    };
  }

  /** Waiting requests go to another engine, if there is one. */
  moveWaiting(engine: Engine): void {
    for (const dispatch of engine.queue.takeAll()) dispatch.moved();
  }

  #watchOne(engine: Engine): void {
    const isOne = this.#all.length === 1;
    if (isOne && this.#report === undefined) return;
    engine.watch(this.#report ?? (() => {}), !isOne);
  }

  #remove(engine: Engine): void {
    engine.isRemoved = true;
    engine.rest();
    this.drain(engine);
    this.#drained(engine);
  }

  /** Closes a removed engine when it has answered all its requests. */
  #drained(engine: Engine): void {
    if (!engine.isRemoved || !engine.isQuiet || !this.#all.includes(engine)) return;
    this.#all = this.#all.filter((each) => each !== engine);
    this.#rule.forget(engine.number);
    this.#removed(engine);
    engine.changed({ kind: 'removed' });
    void engine.close();
  }

  /** The engines that may get a request, at least one. */
  #available(model: () => string, tried: readonly Engine[]): readonly Engine[] {
    const takers = this.#all.filter((engine) => !engine.isDraining && this.#serves(engine, model));
    if (takers.length === 0) throw this.#nobody(model);
    const left = takers.filter((engine) => !tried.includes(engine));
    const well = left.filter(({ health, queue }) => health.isAvailable && !queue.isFull);
    if (well.length > 0) return well;
    const roomless = left.filter(({ health }) => health.isAvailable);
    if (roomless.length > 0) return roomless;
    // An ejected engine may still succeed.
    return left.length > 0 ? left : takers;
  }

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
