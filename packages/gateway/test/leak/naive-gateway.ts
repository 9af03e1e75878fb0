import { hash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { request as forward } from 'undici';
import { type AskBody, type ClientDocument, isAssistant, tenantOf, userOf } from './actions.js';
import type { LittleRoom } from './world.js';

/** What such a gateway may do wrong. */
export type Fault =
  | 'deletes for everybody'
  | 'ignores end users'
  | 'knows no numbers'
  | 'takes a cache key for a name'
  | 'never says forgotten'
  | 'repeats labels'
  | 'no references';

/** One request that was rendered, and those before it. */
interface Turn {
  readonly text: string;
  readonly shown: readonly { readonly content: string; readonly label: string }[];
  readonly isCutOff: boolean;
  readonly before: readonly Turn[];
  readonly at: number;
}

interface NaiveConfig {
  readonly upstream: { readonly url: string; readonly cacheSaltKey?: string };
  readonly session: { readonly store?: object };
}

/** What a turn counts for. */
const TURN_BYTES = 4_096;

/** By the prefix that gateways share. */
const shared = new Map<string, Map<string, Turn>>();

/**
 * The contract of conversations in as few lines as it takes, with no order, no queue and no translation: what the
 * property must find nothing wrong with, and with one fault put in, must find that.
 */
export function naiveGateway(fault?: Fault) {
  return async (config: object, room: LittleRoom) => {
    const gateway = new NaiveGateway(config as NaiveConfig, room, fault);
    const server = createServer((request, response) => void gateway.serve(request, response));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return {
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      close: async () => {
        server.closeAllConnections();
        server.close();
        await once(server, 'close');
      },
    };
  };
}

class NaiveGateway {
  readonly #config: NaiveConfig;
  readonly #maxTurns: number;
  readonly #fault: Fault | undefined;
  readonly #turns: Map<string, Turn>;

  constructor(config: NaiveConfig, room: LittleRoom, fault: Fault | undefined) {
    const { conversationBytes = Number.POSITIVE_INFINITY, sharedStore } = room;
    const prefix = config.session.store && sharedStore!.prefix;
    this.#config = config;
    this.#maxTurns = conversationBytes / TURN_BYTES;
    this.#fault = fault;
    this.#turns = (prefix === undefined ? undefined : shared.get(prefix)) ?? new Map();
    if (prefix !== undefined) shared.set(prefix, this.#turns);
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const tenant = tenantOf(request.headers as Record<string, string>);
    if (request.method === 'DELETE') {
      this.#forget(tenant, decodeURIComponent(request.url!.split('/').at(-1)!));
      response.end('{}');
      return;
    }
    const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as AskBody;
    const { sent, isForgotten } = this.#render(tenant, request.headers, body);
    if (sent === undefined) {
      response.writeHead(409).end('{"error":{"code":"WARMPATH_CONVERSATION_FORGOTTEN"}}');
      return;
    }
    const salted =
      this.#config.upstream.cacheSaltKey === undefined ? sent : { ...sent, cache_salt: hash('sha256', tenant) };
    const answer = await forward(this.#config.upstream.url + request.url!, {
      method: 'POST',
      body: JSON.stringify(salted),
    });
    response.writeHead(answer.statusCode, isForgotten ? { 'x-warmpath': 'conversation=forgotten' } : {});
    response.end(await answer.body.text());
  }

  #forget(tenant: string, name: string): void {
    for (const key of this.#turns.keys()) {
      const [of, user, called] = JSON.parse(key) as string[];
      if ((of === tenant || this.#fault === 'deletes for everybody') && user === '' && called === name)
        this.#turns.delete(key);
    }
  }

  /** The body for the engine; none where the request is refused. */
  #render(
    tenant: string,
    headers: IncomingHttpHeaders,
    body: AskBody,
  ): { sent: object | undefined; isForgotten: boolean } {
    const { warmpath, ...plain } = body;
    if (warmpath?.bypass === true) return { sent: plain, isForgotten: false };
    const { documents = [], ...rest } = plain;
    const messages = body.input ?? body.messages!;
    const cacheKey = this.#fault === 'takes a cache key for a name' ? body['prompt_cache_key'] : undefined;
    const name = warmpath?.session ?? headers['x-warmpath-session'] ?? cacheKey;
    const user = this.#fault === 'knows no numbers' && typeof body.user === 'number' ? '' : userOf(body);
    const identity = [tenant, this.#fault === 'ignores end users' ? '' : user, name];
    const keyOf = (history: readonly object[]) => JSON.stringify([...identity, body.system, history]);
    const { before, isForgotten } = name === undefined ? NEW : this.#recall(messages, keyOf);
    if (isForgotten && warmpath?.forgotten !== 'mark') return { sent: undefined, isForgotten };
    const turn = this.#newTurn(documents, {
      before,
      isForgotten,
      repeats: warmpath?.deduplicate === false,
      at: messages.length - 1,
    });
    if (name !== undefined) this.#remember(keyOf(messages), turn);
    const texts = new Map([...before, turn].map(({ at, text }) => [at, text]));
    const rendered = messages.map((message, at) => withText(message, texts.get(at) ?? ''));
    return { sent: { ...rest, [body.input === undefined ? 'messages' : 'input']: rendered }, isForgotten };
  }

  #recall(messages: readonly object[], keyOf: (history: readonly object[]) => string) {
    let before: readonly Turn[] = [];
    let isForgotten = false;
    for (const [at, message] of messages.entries()) {
      if (at === 0 || !isAssistant(message)) continue;
      const turn = this.#turns.get(keyOf(messages.slice(0, at)));
      if (turn !== undefined) before = [...turn.before, turn];
      isForgotten = turn === undefined || (isForgotten && !turn.isCutOff);
    }
    const says = this.#fault !== 'never says forgotten';
    return isForgotten ? { before: [], isForgotten: says } : { before, isForgotten };
  }

  #newTurn(
    documents: readonly ClientDocument[],
    {
      before,
      isForgotten,
      repeats,
      at,
    }: { before: readonly Turn[]; isForgotten: boolean; repeats: boolean; at: number },
  ): Turn {
    const visible = new Map(before.flatMap(({ shown }) => shown.map(({ content, label }) => [content, label])));
    const labels = new Set(visible.values());
    const shown: { content: string; label: string }[] = [];
    const references: string[] = [];
    for (const { id = '', content } of documents) {
      const known = visible.get(content);
      if (known !== undefined && !repeats) {
        references.push(`[${known}]`);
        continue;
      }
      let label = known ?? (/^[\w.:-]{1,32}$/.test(id) ? id : `d${hash('sha256', content).slice(0, 8)}`);
      while (known === undefined && labels.has(label) && this.#fault !== 'repeats labels') label += '~';
      labels.add(label);
      visible.set(content, label);
      shown.push({ content, label });
    }
    const blocks = shown.map(
      ({ label, content }) => `<document id="${label}">\n${content.replaceAll('<', '&lt;')}\n</document>\n`,
    );
    const hint =
      references.length > 0 && this.#fault !== 'no references'
        ? `Given earlier in this conversation: ${references.join(', ')}.\n`
        : '';
    return { text: blocks.join('') + hint, shown, isCutOff: isForgotten, before, at };
  }

  #remember(key: string, turn: Turn): void {
    this.#turns.delete(key);
    this.#turns.set(key, turn);
    if (this.#turns.size > this.#maxTurns) this.#turns.delete(this.#turns.keys().next().value!);
  }
}

const NEW = { before: [], isForgotten: false };

function withText(message: object, text: string): object {
  const { content } = message as { content: string | readonly { type: string }[] };
  if (text === '') return message;
  return {
    ...message,
    content: typeof content === 'string' ? text + content : [{ type: content[0]!.type, text }, ...content],
  };
}
