import { setMaxListeners } from 'node:events';
import { connect, type Socket } from 'node:net';
import { type Answered, type Attack, type AttackedGateway, key, post, problemsOf } from './attack.js';
import { answerInterleaved } from './sink-engine.js';

const CHAT = '/v1/chat/completions';
const QUESTION = [{ role: 'user', content: 'What is the weight?' }];
/** Milliseconds without a byte more after which a gateway is taken not to read on. */
const STALLED_MS = 3_000;
/** Characters of a document, below what one may have. */
const DOCUMENT_LENGTH = 990_000;

/** Sends this many requests, eight at a time. */
async function sendMany(count: number, send: (index: number) => Promise<Answered>): Promise<string[]> {
  const problems: string[] = [];
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const index = next++;
      problems.push(...problemsOf(`request ${index}`, await send(index)));
    }
  };
  await Promise.all(Array.from({ length: 8 }, worker));
  return problems;
}

/** Documents of so many bytes in all, which nobody has sent before. */
function documentsOf(bytes: number, name: string): object[] {
  return Array.from({ length: Math.ceil(bytes / DOCUMENT_LENGTH) }, (_, place) => ({
    id: `${name}-${place}`,
    content: `${name}-${place} `.padEnd(Math.min(bytes, DOCUMENT_LENGTH), 'The weight of Velka is 42 kg. '),
  }));
}

/** Documents that count as passages that come again: each is sent twice. */
const arrangedDocuments: Attack = {
  name: '200 requests to /v1/arrange with documents of 5 MB',
  run: ({ url, isFull }) =>
    sendMany(isFull ? 200 : 6, (index) =>
      post(`${url}/v1/arrange`, JSON.stringify({ documents: documentsOf(isFull ? 5e6 : 2e5, `${index >> 1}`) })),
    ),
};

const arrangedMetadata: Attack = {
  name: '200 requests to /v1/arrange with metadata of 5 MB',
  run: ({ url, isFull }) =>
    sendMany(isFull ? 200 : 6, (index) => {
      const metadata = { text: `${index}`.padEnd(isFull ? 5e6 : 2e5, 'x') };
      return post(
        `${url}/v1/arrange`,
        JSON.stringify({ documents: [{ id: `m${index}`, content: `${index}.`, metadata }] }),
      );
    }),
};

const modelNames: Attack = {
  name: '200 model names of 5 MB',
  run: async ({ url, isFull }) => {
    const model = (index: number) => `${index}`.padEnd(isFull ? 5e6 : 2e5, 'm');
    const documents = documentsOf(1_000, 'd');
    const count = isFull ? 200 : 6;
    return [
      ...(await sendMany(count, (index) =>
        post(url + CHAT, JSON.stringify({ model: model(index), documents, messages: QUESTION })),
      )),
      ...(await sendMany(count, (index) =>
        post(`${url}/v1/arrange`, JSON.stringify({ model: model(index), documents })),
      )),
    ];
  },
};

/** Sends a part of a body and stays. */
class StalledClient {
  readonly #socket: Socket;
  answer = '';

  constructor(url: string, length: number, sent: number) {
    const { hostname, port } = new URL(url);
    this.#socket = connect(Number(port), hostname);
    this.#socket.setEncoding('latin1').on('data', (text: string) => {
      this.answer += text;
    });
    this.#socket.on('error', () => {});
    this.#socket.write(
      `POST ${CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`,
    );
    this.#socket.write(Buffer.alloc(sent, '{"model":"m","messages":[1,1,'));
  }

  get bytesSent(): number {
    return this.#socket.bytesWritten - this.#socket.writableLength;
  }

  leave(): void {
    this.#socket.destroy();
  }
}

const stalledBodies: Attack = {
  name: '60 clients that send 32 of 33 MB and stop',
  run: async ({ url, isFull }) => {
    const clients = Array.from({ length: isFull ? 60 : 6 }, () =>
      isFull ? new StalledClient(url, 33e6, 32e6) : new StalledClient(url, 33e5, 32e5),
    );
    if (isFull) await untilStill(clients);
    const body = JSON.stringify({ model: 'm', messages: QUESTION });
    const others = problemsOf('another client meanwhile', await post(url + CHAT, body, { headers: key('other') }));
    const refused = clients.flatMap(({ answer }) => (/^(?:HTTP\/1\.1 4|$)/.test(answer) ? [] : [answer.slice(0, 200)]));
    for (const client of clients) client.leave();
    return [...others, ...refused];
  },
};

/** Until no more is read of anybody's body. */
async function untilStill(clients: readonly StalledClient[]): Promise<void> {
  const total = () => clients.reduce((sum, { bytesSent }) => sum + bytesSent, 0);
  for (let before = -1; total() !== before; ) {
    before = total();
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS));
  }
}

const waitingPrompts: Attack = {
  name: '60 waiting prompts of 9 MB behind an engine that does not answer',
  config: { upstream: { maxConcurrent: 2 } },
  run: async ({ url, engine, isFull }) => {
    const answers = engine.answer;
    const held: (() => void)[] = [];
    engine.answer = (response, isStream) => {
      held.push(() => answers(response, isStream));
    };
    const leaving = new AbortController();
    setMaxListeners(0, leaving.signal);
    let refused = 0;
    const problems: string[] = [];
    const sent = Array.from({ length: isFull ? 60 : 6 }, (_, index) => {
      const documents = documentsOf(isFull ? 9e6 : 9e5, `w${index}`);
      const body = JSON.stringify({ model: 'm', documents, messages: QUESTION });
      return post(url + CHAT, body, { headers: key(`w${index % 8}`), signal: leaving.signal }).then((answered) => {
        if (leaving.signal.aborted) return;
        refused++;
        problems.push(...problemsOf(`prompt ${index}`, answered));
      });
    });
    const settled = () => engine.requests >= 2 || refused === sent.length;
    while (!settled()) await new Promise((resolve) => setImmediate(resolve));
    if (isFull) await new Promise((resolve) => setTimeout(resolve, STALLED_MS));
    engine.answer = answers;
    leaving.abort();
    await Promise.all(sent);
    for (const answer of held) answer();
    return problems;
  },
};

/** What is asked of conversations while somebody else fills the memory. */
async function converse(url: string, tenant: number, turns: number): Promise<Answered> {
  const session = { session: 'talk' };
  const said = { role: 'assistant', content: 'It is 42 kg.' };
  const messages = Array.from({ length: turns }, (_, turn) => [
    ...(turn > 0 ? [said] : []),
    { role: 'user', content: `Q${turn}` },
  ]).flat();
  const documents = turns === 1 ? [{ id: 'own', content: `The secret of ${tenant} is here.` }] : undefined;
  const body = JSON.stringify({ model: 'm', messages, documents, warmpath: session });
  return post(url + CHAT, body, { headers: key(`tenant-${tenant}`) });
}

const evictions: Attack = {
  name: '20 requests of 19 MB in all of clients without a key against the conversations of 50 tenants',
  run: async ({ url, engine, isFull }) => {
    const tenants = Array.from({ length: isFull ? 50 : 10 }, (_, tenant) => tenant);
    const problems: string[] = [];
    for (const tenant of tenants) problems.push(...problemsOf(`tenant ${tenant}`, await converse(url, tenant, 1)));
    problems.push(
      ...(await sendMany(20, (index) => {
        const documents = documentsOf(19e6 / 20, `big${index}`);
        return post(
          url + CHAT,
          JSON.stringify({ model: 'm', documents, messages: QUESTION, warmpath: { session: `s${index}` } }),
        );
      })),
    );
    for (const tenant of tenants) {
      const { status } = await converse(url, tenant, 2);
      const isReplayed = engine.lastBody.includes(`The secret of ${tenant} is here.`);
      if (status !== 200 || !isReplayed) problems.push(`tenant ${tenant} lost its conversation (${status})`);
    }
    return problems;
  },
};

const interleavedCalls = (route: '/v1/messages' | '/v1/responses'): Attack => ({
  name: `50,000 interleaved calls of tools in a translated stream of ${route}`,
  run: async ({ url, engine, isFull }: AttackedGateway) => {
    const answers = engine.answer;
    engine.answer = answerInterleaved(isFull ? 50_000 : 1_000);
    const body = {
      model: 'm',
      max_tokens: 9,
      stream: true,
      ...(route === '/v1/messages' ? { messages: QUESTION } : { input: 'Q' }),
    };
    const answered = await post(url + route, JSON.stringify(body));
    engine.answer = answers;
    // A stream that cannot be translated ends in an error event, and then in a broken connection.
    const isRefused = answered.isBroken && /event: (?:error|response\.failed)/.test(answered.text);
    return isRefused ? [] : problemsOf(route, answered);
  },
});

/** What a gateway keeps of what it was sent. */
export const MEMORY: readonly Attack[] = [
  arrangedDocuments,
  arrangedMetadata,
  modelNames,
  stalledBodies,
  waitingPrompts,
  evictions,
  interleavedCalls('/v1/messages'),
  interleavedCalls('/v1/responses'),
];
