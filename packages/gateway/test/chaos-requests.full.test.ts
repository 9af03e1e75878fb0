import { type ChildProcess, fork } from 'node:child_process';
import { hash } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { createClient } from '@redis/client';
import { expect, it } from 'vitest';
import { chaosSeed, ROUNDS, random } from './chaos.js';
import { chat, closing, type Reply, send } from './harness.js';
import { RedisServer } from './redis-server.js';

// Conversations through several gateways, engines and a store, each of which is killed, stopped or emptied while
// requests are under way. No request is lost that an engine had not begun, every answer is for its own question, and
// afterwards every gateway sends the same for the same.

const PROGRAM = new URL('../bench/gateway-process.js', import.meta.url);
const CHAT = '/v1/chat/completions';
const TIMEOUT = 120_000 * ROUNDS;
const CLIENTS = 5;
const TURNS = 8;
const PASSAGES = Array.from({ length: 6 }, (_, place) => ({
  id: `p${place}`,
  content: `Passage ${place}: ${'fact '.repeat(20 + place)}end of ${place}.`,
}));

type Draw = (below: number) => number;
interface Message {
  readonly role: string;
  readonly content: string;
}

/** What an engine saw of a prompt: its answer's text. */
interface Seen {
  readonly mark: string | undefined;
  /** How often each passage stands in it. */
  readonly passages: readonly number[];
  /** Hash of the whole prompt. */
  readonly prompt: string;
}

/** An engine that answers by what it saw, in pieces, and can be killed and started again at its address. */
class MortalEngine {
  deaths = 0;
  readonly #server: Server;
  #port = 0;

  private constructor() {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request.on('error', () => {})) chunks.push(chunk as Buffer);
      await this.#answer(Buffer.concat(chunks).toString(), response);
    });
  }

  static async start(): Promise<MortalEngine> {
    const engine = new MortalEngine();
    await engine.live();
    engine.#port = (engine.#server.address() as AddressInfo).port;
    return engine;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async live(): Promise<void> {
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async die(): Promise<void> {
    this.deaths++;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async close(): Promise<void> {
    if (this.#server.listening) await this.die();
  }

  async #answer(body: string, response: ServerResponse): Promise<void> {
    const seen: Seen = {
      mark: body.match(/mark-\d+-\d+/g)?.at(-1),
      passages: PASSAGES.map(({ content }) => body.split(content).length - 1),
      prompt: hash('sha1', body.replace(/"stream":true,?/, '')),
    };
    const content = JSON.stringify(seen);
    await turn();
    if (!body.includes('"stream":true')) {
      const message = { role: 'assistant', content };
      const usage = { prompt_tokens: 100, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 10 } };
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ choices: [{ index: 0, message }], usage }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (let from = 0; from < content.length && !response.destroyed; from += 20) {
      const delta = { content: content.slice(from, from + 20) };
      response.write(`data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`);
      await turn();
    }
    response.end('data: [DONE]\n\n');
  }
}

/** A gateway in a process of its own that can be killed; another one takes its place. */
class MortalGateway {
  deaths = 0;
  lives = false;
  readonly #config: object;
  readonly #engine: string;
  #process: ChildProcess | undefined;
  #url = '';

  constructor(engine: string, config: object) {
    this.#engine = engine;
    this.#config = config;
  }

  get url(): string {
    return this.#url;
  }

  async live(): Promise<void> {
    const child = fork(PROGRAM, [this.#engine, JSON.stringify(this.#config)], { execArgv: [] });
    const [{ url }] = (await once(child, 'message')) as [{ url: string }];
    this.#process = child;
    this.#url = url;
    this.lives = true;
  }

  async die(): Promise<void> {
    this.deaths++;
    this.lives = false;
    const exit = once(this.#process!, 'exit');
    this.#process!.kill('SIGKILL');
    await exit;
  }

  async close(): Promise<void> {
    const { exitCode, signalCode } = this.#process!;
    if (exitCode === null && signalCode === null) await this.die();
  }
}

/** The text of a complete answer, or `undefined` for one that says, by an error or its end, that it is not. */
function answerIn({ text, broken, headers }: Reply): string | undefined {
  if (broken) return undefined;
  if (!headers['content-type']?.startsWith('text/event-stream')) {
    return (JSON.parse(text) as { choices: [{ message: Message }] }).choices[0].message.content;
  }
  if (text.includes('event: error') || !text.endsWith('data: [DONE]\n\n')) return undefined;
  return [...text.matchAll(/^data: (\{.*\})$/gm)]
    .map(([, data]) => (JSON.parse(data!) as { choices: [{ delta: { content: string } }] }).choices[0].delta.content)
    .join('');
}

class Chaos {
  readonly draw: Draw;
  readonly engines: readonly MortalEngine[];
  readonly gateways: readonly MortalGateway[];
  readonly store: RedisServer;
  /** Requests that are over, by what became of them. */
  readonly ends = { answered: 0, broken: 0, refused: 0 };
  readonly #progress = new EventEmitter();

  constructor(draw: Draw, engines: readonly MortalEngine[], gateways: readonly MortalGateway[], store: RedisServer) {
    this.draw = draw;
    this.engines = engines;
    this.gateways = gateways;
    this.store = store;
    this.#progress.setMaxListeners(100);
  }

  /** Asks one gateway; what was seen of the prompt, or `undefined` where a death cost the answer. */
  async ask(
    gateway: MortalGateway,
    body: object,
    about: { readonly mark: string; readonly places: readonly number[] },
  ) {
    const before = { gateway: gateway.deaths, engines: this.#engineDeaths };
    const reply = await send(gateway.url + CHAT, body).catch(() => undefined);
    const [gatewayDied, engineDied] = [gateway.deaths > before.gateway, this.#engineDeaths > before.engines];
    const answer = reply?.status === 200 ? answerIn(reply) : undefined;
    this.#progress.emit('end');
    if (answer === undefined) {
      // Nothing but a death under way may cost an answer; an engine that was dead before costs none.
      expect(gatewayDied || engineDied, `${reply?.status} ${reply?.text.slice(0, 300)}`).toBe(true);
      if (reply === undefined || reply.broken || reply.status === 200) this.ends.broken++;
      else this.ends.refused++;
      return undefined;
    }
    this.ends.answered++;
    const seen = JSON.parse(answer) as Seen;
    expect(seen.mark).toBe(about.mark);
    for (const place of about.places) expect(seen.passages[place], `passage ${place} in ${about.mark}`).toBe(1);
    return { seen, answer };
  }

  /** Resolves when so many more requests are over. */
  async progress(requests: number): Promise<void> {
    for (let i = 0; i < requests; i++) await once(this.#progress, 'end');
  }

  get #engineDeaths(): number {
    return this.engines.reduce((sum, { deaths }) => sum + deaths, 0);
  }

  /** One conversation, each turn through a gateway at random; an answer that was lost is asked for again. */
  async converse(client: number): Promise<{ readonly messages: readonly Message[]; readonly places: number[] }> {
    let messages: readonly Message[] = [{ role: 'system', content: 'Answer from the documents.' }];
    let places: number[] = [];
    for (let turnNumber = 0; turnNumber < TURNS; turnNumber++) {
      const mark = `mark-${client}-${turnNumber}`;
      places = PASSAGES.map((_, place) => place).filter(() => this.draw(2) === 0);
      const asked = [...messages, { role: 'user', content: `What of ${mark}?` }];
      const body = this.body(client, asked, places, this.draw(2) === 0);
      for (;;) {
        const got = await this.ask(this.#living(), body, { mark, places });
        if (got === undefined) continue;
        messages = [...asked, { role: 'assistant', content: got.answer }];
        break;
      }
    }
    return { messages, places };
  }

  /** As a load balancer does it: none that is known to be gone. */
  #living(): MortalGateway {
    const living = this.gateways.filter(({ lives }) => lives);
    return living[this.draw(living.length)]!;
  }

  body(client: number, messages: readonly Message[], places: readonly number[], isStream: boolean): object {
    const warmpath = { session: `c${client}`, forgotten: 'mark' };
    const documents = places.map((place) => PASSAGES[place]!);
    return chat(documents, { messages, warmpath, ...(isStream && { stream: true }) });
  }

  /** One fault, and its end. */
  async fault(kind: number): Promise<void> {
    if (kind === 0) {
      const engine = this.engines[this.draw(this.engines.length)]!;
      await engine.die();
      await this.progress(2 + this.draw(4));
      await engine.live();
    } else if (kind === 1) {
      const gateway = this.gateways[this.draw(this.gateways.length)]!;
      await gateway.die();
      await gateway.live();
    } else if (kind === 2) {
      await this.store.kill();
      await this.progress(2 + this.draw(4));
      await this.store.restart();
    } else if (kind === 3) {
      this.store.stall();
      await this.progress(2 + this.draw(4));
      this.store.go();
    } else {
      const client = createClient({ url: this.store.url, RESP: 2 }).on('error', () => {});
      await client.connect();
      await client.sendCommand(['FLUSHALL']);
      client.destroy();
    }
  }
}

it(
  'loses no request that had not begun, answers none wrongly, and converges',
  async () => {
    const seed = chaosSeed();
    for (let round = 0; round < ROUNDS; round++) {
      const draw = random(seed + round);
      const engines = await Promise.all([0, 1, 2].map(() => MortalEngine.start()));
      for (const engine of engines) closing(engine);
      const store = closing(await RedisServer.start());
      const config = {
        engines: engines.map(({ url }, place) => ({ name: `e${place}`, url })),
        arrange: { policy: 'sorted' },
        session: { store: { url: store.url } },
        parts: { sharedStore: { timeoutMs: 200 } },
      };
      const gateways = [0, 1, 2].map(() => closing(new MortalGateway(engines[0]!.url, config)));
      await Promise.all(gateways.map((gateway) => gateway.live()));
      const chaos = new Chaos(draw, engines, gateways, store);
      let areDone = false;
      let finish = (): void => {};
      const done = new Promise<void>((resolve) => {
        finish = resolve;
      });
      const faults = (async () => {
        for (let fault = 0; !areDone; fault++) {
          // Each kind in turn, then any.
          await chaos.fault(fault < 5 ? fault : draw(5));
          if (!areDone) await Promise.race([chaos.progress(3), done]);
        }
      })();
      const talks = await Promise.all(Array.from({ length: CLIENTS }, (_, client) => chaos.converse(client)));
      areDone = true;
      finish();
      // A fault may wait for requests to go on, and now there are none but these.
      let isOver = false;
      void faults.then(() => {
        isOver = true;
      });
      while (!isOver) {
        await chaos.ask(
          gateways.find(({ lives }) => lives)!,
          chaos.body(99, [{ role: 'user', content: 'mark-99-0' }], [], false),
          {
            mark: 'mark-99-0',
            places: [],
          },
        );
        await turn();
      }
      await faults;
      for (const { url } of gateways) while (!(await metrics(url)).includes('warmpath_session_store_up 1\n'));
      // What every gateway sends for the next turn of each conversation.
      for (const [client, { messages, places }] of talks.entries()) {
        const mark = `mark-${client}-${TURNS}`;
        const body = chaos.body(client, [...messages, { role: 'user', content: `What of ${mark}?` }], places, false);
        const prompts: string[] = [];
        for (const gateway of [...gateways, ...gateways]) {
          const got = await chaos.ask(gateway, body, { mark, places });
          prompts.push(got!.seen.prompt);
        }
        expect(new Set(prompts.slice(gateways.length)).size, `client ${client} of seed ${seed + round}`).toBe(1);
      }
      expect(chaos.ends.answered).toBeGreaterThanOrEqual(CLIENTS * TURNS);
      for (const resource of [...gateways, ...engines, store]) await resource.close();
    }
  },
  TIMEOUT,
);

async function metrics(url: string): Promise<string> {
  return (await send(`${url}/metrics`)).text;
}
