import { Agent, request as httpRequest } from 'node:http';
import type { GatewayConfigInput } from '../../gateway/src/config/schema.js';
import { type RunningGateway, startGateway } from '../../gateway/src/start-gateway.js';
import { type EnginePrompt, SimulatedEngine } from './simulated-engine.js';

/** One request of a simulation. */
export interface SimulatedRequest {
  readonly atMs: number;
  readonly body: object;
  readonly headers?: Readonly<Record<string, string>>;
  /** The engine's answer in place of a stream. */
  readonly status?: number;
}

/** Milliseconds that the engine takes for a prompt, for a token of it that is not cached, and for the answer. */
const PROMPT_MS = 18;
const TOKEN_MS = 0.32;
const ANSWER_MS = 420;
/** Milliseconds that pass whenever the gateway looks at its clock. */
const LOOK_MS = 0.02;

/**
 * A gateway before a simulated engine, in simulated time: real sockets, but the gateway's clock stands at the event
 * that happens. So a quarter of an hour takes seconds, and the same requests give the same figures.
 */
export class Simulation {
  readonly engine: SimulatedEngine;
  readonly gateway: RunningGateway;
  readonly #clock: { now: number };
  readonly #limit: number;
  readonly #operator: Readonly<Record<string, string>>;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 256 });
  readonly #events: { readonly atMs: number; readonly happen: () => Promise<void> }[] = [];
  readonly #sent = new Map<string, Sent>();
  #underWay = 0;
  #queued = 0;
  #prompted = () => {};

  private constructor(
    engine: SimulatedEngine,
    gateway: RunningGateway,
    settings: { readonly clock: { now: number }; readonly limit: number; readonly operatorKey: string | undefined },
  ) {
    this.engine = engine;
    this.gateway = gateway;
    this.#clock = settings.clock;
    this.#limit = settings.limit;
    this.#operator = settings.operatorKey === undefined ? {} : { authorization: `Bearer ${settings.operatorKey}` };
    engine.onPrompt = (prompt) => this.#engineHas(prompt);
  }

  /** `maxBlocks`: what the engine's cache holds; `limit`: prompts that it gets at once. */
  static async start(
    config: Omit<GatewayConfigInput, 'upstream'> = {},
    { maxBlocks = 100_000, limit = 1_000 } = {},
  ): Promise<Simulation> {
    const engine = await SimulatedEngine.start({ maxBlocks });
    const clock = { now: 1_000_000 };
    const { server, queue, ...rest } = config;
    const gateway = await startGateway(
      {
        ...rest,
        server: { port: 0, ...server },
        queue,
        upstream: { url: engine.url, maxConcurrent: limit },
        log: { level: 'silent' },
      },
      // Whoever looks at the clock takes a little time.
      { now: () => (clock.now += LOOK_MS) },
    );
    return new Simulation(engine, gateway, { clock, limit, operatorKey: server?.operatorKey?.key });
  }

  /** Milliseconds of the simulated clock. */
  get now(): number {
    return this.#clock.now;
  }

  /** Sends requests at their times, and lets all of them end, or everything happen that does before `untilMs`. */
  async run(requests: readonly SimulatedRequest[], untilMs = Number.POSITIVE_INFINITY): Promise<void> {
    for (const request of requests) this.#at(request.atMs, () => this.#send(request));
    while (this.#events.length > 0 && this.#events[0]!.atMs <= untilMs) {
      const { atMs, happen } = this.#events.shift()!;
      this.#clock.now = Math.max(this.#clock.now, atMs);
      await happen();
    }
    if (untilMs !== Number.POSITIVE_INFINITY) this.#clock.now = untilMs;
  }

  async close(): Promise<void> {
    this.#agent.destroy();
    await this.gateway.close();
    await this.engine.close();
  }

  #at(atMs: number, happen: () => Promise<void>): void {
    const place = this.#events.findLastIndex((event) => event.atMs <= atMs) + 1;
    this.#events.splice(place, 0, { atMs, happen });
  }

  /** Sends one request. Resolves when the engine has it, or it waits in the gateway's queue. */
  async #send({ body, headers = {}, status }: SimulatedRequest): Promise<void> {
    const id = `request-${this.#sent.size + 1}`;
    const [first, firstSeen] = signal();
    const [end, endSeen] = signal();
    this.#sent.set(id, { first, end, status });
    const reachesEngine = this.#nextPrompt();
    const request = httpRequest(`${this.gateway.url}/v1/chat/completions`, {
      agent: this.#agent,
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': id, ...headers },
    });
    request.on('error', endSeen);
    request.on('response', (response) => {
      response.once('data', firstSeen);
      response.on('data', () => {});
      response.on('close', endSeen);
    });
    request.end(JSON.stringify(body));
    if (this.#underWay < this.#limit) {
      await reachesEngine;
      return;
    }
    this.#queued++;
    while ((await this.#metric('warmpath_queue_depth')) < this.#queued);
  }

  #nextPrompt(): Promise<void> {
    const [reached, reach] = signal();
    this.#prompted = reach;
    return reached;
  }

  /** The engine decides now when its answer will begin and end. */
  #engineHas(prompt: EnginePrompt): void {
    const { first, end, status } = this.#sent.get(prompt.id)!;
    this.#underWay++;
    this.#prompted();
    const { now } = this.#clock;
    if (status !== undefined) {
      this.#at(now + PROMPT_MS, () => this.#over(() => prompt.fail(status), end));
      return;
    }
    // More prompts at once take longer, as in a real engine.
    const slower = 0.7 + 0.3 * this.#underWay;
    const prefill = slower * (PROMPT_MS + TOKEN_MS * (prompt.promptTokens - prompt.cachedTokens));
    this.#at(now + prefill, async () => {
      prompt.first();
      await first;
    });
    this.#at(now + prefill + slower * ANSWER_MS, () => this.#over(prompt.end, end));
  }

  /** An answer ends, and who is next in the queue goes to the engine. */
  async #over(answer: () => void, end: Promise<void>): Promise<void> {
    this.#underWay--;
    const reachesEngine = this.#nextPrompt();
    answer();
    await end;
    if (this.#queued === 0) return;
    this.#queued--;
    await reachesEngine;
  }

  async #metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.gateway.url}/metrics`, { headers: this.#operator })).text();
    return Number(new RegExp(`^${name} (.*)$`, 'm').exec(text)![1]);
  }
}

interface Sent {
  readonly first: Promise<void>;
  readonly end: Promise<void>;
  readonly status: number | undefined;
}

/** A promise and what resolves it. */
function signal(): [Promise<void>, () => void] {
  let resolve = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return [promise, () => resolve()];
}
