// How long one body holds the gateway's event loop: bodies as large as the limits allow, one at a time, against a
// gateway in a process of its own that measures the longest turn of its event loop, in CPU time of that thread: what
// others do on the machine does not count. Linux only. `node bench/event-loop.js [--only words] [--limit-ms 50]
// [--rounds 3] [--json]`, after a build. Exits with 1 where one takes longer.
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { draws, prose } from './draw.js';
import { start, stopAll } from './processes.js';

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    'limit-ms': { type: 'string', default: '50' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'boolean', default: false },
  },
});
const MIB = 2 ** 20;
/** Less than what the gateway takes with its defaults: a body, and what it becomes. */
const BODY_BYTES = 8 * MIB;
const LARGEST_BYTES = 28 * MIB;

const next = draws();
const TEXT = prose(next, 40_000);
/** Some text of so many characters; `i` makes it another one. */
function text(i, length) {
  const at = (i * 977) % 1_000;
  return `${i} ${TEXT.slice(at, at + 1_000)}${TEXT.repeat(Math.ceil(length / TEXT.length))}`.slice(0, length);
}

const question = { role: 'user', content: 'What is the weight?' };
const documents = (count, bytes, make = text) =>
  Array.from({ length: count }, (_, i) => ({ id: `d${i}`, content: make(i, Math.floor(bytes / count)) }));
const lines = (i, length) =>
  text(i, length)
    .replaceAll(' ', '\n')
    .slice(0, length / 2);
const signs = (i, length) => `${i} ${'"\\'.repeat(length / 4)}`;
const greek = (i, length) => `${i} ${'αβγδε '.repeat(length / 11)}`;
const tags = (count, bytes) =>
  documents(count, bytes)
    .map(({ id, content }) => `<document id="${id}">\n${content}\n</document>\n`)
    .join('')
    .replace(/^|$/g, (_edge, at) => (at === 0 ? '<warmpath-documents>\n' : '</warmpath-documents>\n'));
const conversation = (count, bytes) =>
  Array.from({ length: count }, (_, i) => ({
    role: i % 2 === 0 ? 'user' : 'assistant',
    content: text(i, Math.floor(bytes / count)),
  }));

const CHAT = '/v1/chat/completions';
const chat = (fields) => [CHAT, { model: 'm', messages: [question], ...fields }];
/** Name, path and body; of several bodies the last is the one that counts, and the others go before it. */
const CASES = [
  ['nothing, for comparison', chat({})],
  ['8 MB in 8 documents', chat({ documents: documents(8, BODY_BYTES * 0.9) })],
  ['8 MB in 1000 documents', chat({ documents: documents(1_000, BODY_BYTES) })],
  ['28 MB in 40 documents', chat({ documents: documents(40, LARGEST_BYTES) })],
  ['8 MB in 100 documents of lines', chat({ documents: documents(100, BODY_BYTES, lines) })],
  ['8 MB in 100 documents of escaped signs', chat({ documents: documents(100, BODY_BYTES, signs) })],
  ['8 MB in 100 documents of Greek', chat({ documents: documents(100, BODY_BYTES, greek) })],
  [
    'the same 8 MB of documents again',
    chat({ documents: documents(100, BODY_BYTES) }),
    chat({ documents: documents(100, BODY_BYTES) }),
  ],
  ['8 MB of metadata', chat({ documents: [{ content: 'a', metadata: { x: TEXT.repeat(BODY_BYTES / TEXT.length) } }] })],
  [
    '8 MB of small metadata',
    chat({
      documents: documents(100, 1e5).map((d) => ({
        ...d,
        metadata: Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`${d.id}k${i}`, `a longer value ${i}`])),
      })),
    }),
  ],
  [
    '8 MB of one message beside documents',
    chat({ documents: documents(3, 3_000), messages: [{ role: 'user', content: text(0, BODY_BYTES) }] }),
  ],
  [
    '28 MB of one message beside documents',
    chat({ documents: documents(3, 3_000), messages: [{ role: 'user', content: text(0, LARGEST_BYTES) }] }),
  ],
  [
    '8 MB of messages beside documents',
    chat({ documents: documents(3, 3_000), messages: [...conversation(2_000, BODY_BYTES), question] }),
  ],
  [
    '8 MB of tools beside documents',
    chat({
      documents: documents(3, 3_000),
      tools: [{ type: 'function', function: { name: 'f', description: text(1, BODY_BYTES) } }],
    }),
  ],
  [
    '8 MB of a named conversation',
    chat({
      warmpath: { session: 's', forgotten: 'mark' },
      documents: documents(100, BODY_BYTES / 2),
      messages: [...conversation(200, BODY_BYTES / 2), question],
    }),
  ],
  [
    '8 MB of parts of a named conversation',
    chat({
      warmpath: { session: 's2', forgotten: 'mark', blocks: true },
      documents: documents(100, BODY_BYTES / 2),
      messages: [...conversation(200, BODY_BYTES / 2), question],
    }),
  ],
  ['28 MB of messages that ask nothing', chat({ messages: [...conversation(200, LARGEST_BYTES), question] })],
  ['4 MB of tags in one prompt', chat({ messages: [{ role: 'user', content: `${tags(200, 4e6)}What?` }] })],
  [
    '4 MB of tags in many messages',
    chat({ messages: conversation(100, 100).map(({ role }, i) => ({ role, content: `${tags(20, 4e4)}What ${i}?` })) }),
  ],
  [
    '8 MB for a completion',
    ['/v1/completions', { model: 'm', prompt: 'What?', documents: documents(100, BODY_BYTES) }],
  ],
  [
    '8 MB of messages to translate',
    ['/v1/messages', { model: 'm', max_tokens: 9, messages: conversation(200, BODY_BYTES * 0.97) }],
  ],
  [
    '8 MB of documents to translate',
    ['/v1/messages', { model: 'm', max_tokens: 9, messages: [question], documents: documents(100, BODY_BYTES * 0.97) }],
  ],
  [
    '8 MB of a Responses request to translate',
    ['/v1/responses', { model: 'm', input: conversation(200, BODY_BYTES * 0.97) }],
  ],
  ['8 MB to arrange', ['/v1/arrange', { model: 'm', documents: documents(100, BODY_BYTES) }]],
  [
    '8 MB to plan',
    [
      '/v1/plan',
      {
        contexts: Array.from({ length: 30_000 }, (_, i) =>
          Array.from({ length: 15 }, (_, j) => `document-${(i * 7 + j * 13) % 900}`),
        ),
      },
    ],
  ],
  ['8 MB to warm up', ['/v1/warmup', { model: 'm', messages: [{ role: 'system', content: text(0, BODY_BYTES) }] }]],
  ['28 MB to arrange', ['/v1/arrange', { model: 'm', documents: documents(40, LARGEST_BYTES) }]],
  ['28 MB to warm up', ['/v1/warmup', { model: 'm', messages: [{ role: 'system', content: text(0, LARGEST_BYTES) }] }]],
  [
    '28 MB of tools beside documents',
    chat({
      documents: documents(3, 3_000),
      tools: [{ type: 'function', function: { name: 'f', description: text(1, LARGEST_BYTES) } }],
    }),
  ],
  [
    '8 MB of numbers beside documents',
    chat({ documents: documents(3, 3_000), x: Array.from({ length: 550_000 }, (_, i) => -i / 8) }),
  ],
  [
    '28 MB of a named conversation',
    chat({
      warmpath: { session: 's3', forgotten: 'mark' },
      documents: documents(3, 3_000),
      messages: [...conversation(200, LARGEST_BYTES), question],
    }),
  ],
  [
    '8 MB of tokens to count',
    ['/v1/messages/count_tokens', { model: 'm', messages: conversation(200, BODY_BYTES * 0.97) }],
  ],
];

async function heldMs(gateway, bodies, round) {
  const pool = new Pool(gateway.url, { connections: 1, headersTimeout: 60_000 });
  let held = 0;
  let status = 0;
  for (const [path, body] of bodies) {
    // Each round has documents, and a conversation, of its own.
    const bytes = Buffer.from(
      JSON.stringify(body)
        .replaceAll('"content":"', `"content":"${round} `)
        .replace('"session":"', `"session":"${round}`),
    );
    await ask(gateway);
    const response = await pool.request({
      method: 'POST',
      path,
      headers: { 'content-type': 'application/json' },
      body: bytes,
    });
    await response.body.dump({ limit: Number.POSITIVE_INFINITY });
    status = response.statusCode;
    held = await ask(gateway);
  }
  await pool.close();
  return { held, status };
}

/** The longest stretch since it was asked the last time. */
function ask({ child }) {
  return new Promise((resolve) => {
    child.once('message', ({ heldMs }) => resolve(heldMs));
    child.send('held');
  });
}

const limit = Number(values['limit-ms']);
const engine = await start('upstream-process.js');
const config = { parts: { apiRoute: 'translate' } };
try {
  for (const [name, ...bodies] of CASES.filter(([name]) => name.includes(values.only))) {
    const gateway = await start('gateway-process.js', engine.url, JSON.stringify(config));
    await heldMs(gateway, [chat({ documents: documents(3, 3_000) }), chat({ documents: documents(3, 3_000) })], 'warm');
    const each = [];
    let status;
    for (let round = 0; round < Number(values.rounds); round++) {
      const result = await heldMs(gateway, bodies, round);
      ({ status } = result);
      each.push(result.held);
    }
    gateway.child.kill();
    const longest = Math.max(...each);
    if (longest > limit) process.exitCode = 1;
    if (values.json) console.log(JSON.stringify({ name, status, heldMs: each }));
    else
      console.log(
        `${longest > limit ? 'FAIL' : 'ok  '} ${name} (${status}): ${each.map((ms) => ms.toFixed(0)).join(', ')} ms`,
      );
  }
} finally {
  stopAll();
}
