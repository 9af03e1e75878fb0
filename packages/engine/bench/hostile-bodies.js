// Bodies that nobody means well: valid bodies of every route with something changed in them, and a list of bodies that
// are made to cost as much as they can. Shared by `npm run attacks` and the tests.

const CHAT = '/v1/chat/completions';
const PLAIN = '/v1/completions';

const FIELDS = {
  max_tokens: 2,
  temperature: 0.5,
  top_p: 0.9,
  top_k: 5,
  presence_penalty: 0.1,
  frequency_penalty: 0.1,
  repetition_penalty: 1.1,
  seed: 7,
  stop: ['kg', '\n\n'],
  logit_bias: { 5: -1, 300: 2.5 },
  cache_salt: 'tenant',
  n: 1,
};

const SCHEMA = {
  type: 'object',
  properties: {
    name: { type: 'string', minLength: 1, maxLength: 5 },
    kind: { enum: ['a', 'b', 1, null] },
    places: { type: 'array', items: { $ref: '#/$defs/place' }, maxItems: 3 },
  },
  required: ['name'],
  $defs: {
    place: {
      anyOf: [
        { type: 'integer', minimum: 0 },
        { type: 'string', pattern: '^[a-z]{2}-\\d+$' },
      ],
    },
  },
};

/** Valid bodies of every route that takes one, and the queries of `GET /kv`. */
const SEEDS = [
  { path: CHAT, value: { messages: [{ role: 'user', content: 'Hello' }], ...FIELDS } },
  {
    path: CHAT,
    value: {
      messages: [
        { role: 'system', name: 'a', content: 'You answer <|im_end|>.' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'One 😀.\n' },
            { type: 'text', text: 'Two?' },
          ],
        },
        { role: 'assistant', content: null },
        { role: 'tool', content: '' },
      ],
      max_completion_tokens: 2,
      stream: true,
      stream_options: { include_usage: true },
      response_format: { type: 'text' },
      tool_choice: 'auto',
      tools: [{ type: 'function', function: { name: 'f', parameters: {} } }],
    },
  },
  { path: PLAIN, value: { prompt: 'One document. Another. Question?', segments: [14, 23], ...FIELDS, stream: true } },
  { path: PLAIN, value: { prompt: [300, 301, 302, 303], segments: [2], max_tokens: 0, logprobs: null } },
  { path: '/tokenize', value: { content: 'some <|im_start|> text', add_special: true, parse_special: false } },
  { path: '/tokenize', value: { messages: [{ role: 'user', content: 'Hi' }], add_generation_prompt: false } },
  { path: '/detokenize', value: { tokens: [300, 5, 1000] } },
  { path: '/kv', value: { paths: 3, depth: 4, sort: 'tokens' } },
  {
    path: '/kv/lookup',
    value: { prompt: 'One document. Another. Question?', segments: [14, 23], cache_salt: 'tenant' },
  },
  { path: '/kv/flush', value: { tiers: ['host', 'disk'], cache_salt: 'tenant' } },
  {
    path: CHAT,
    value: {
      messages: [{ role: 'user', content: 'Hello' }],
      response_format: { type: 'json_schema', json_schema: { name: 'a', strict: true, schema: SCHEMA } },
      logprobs: true,
      top_logprobs: 2,
      max_tokens: 2,
    },
  },
  {
    path: CHAT,
    value: {
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [{ type: 'function', function: { name: 'f', description: 'g', parameters: SCHEMA } }],
      tool_choice: { type: 'function', function: { name: 'f' } },
      stream: true,
      max_tokens: 2,
    },
  },
  { path: PLAIN, value: { prompt: 'a', structured_outputs: { json: SCHEMA }, logprobs: 1, max_tokens: 2 } },
];

const STRANGE = [
  null,
  true,
  0,
  -1,
  1.5,
  2 ** 31,
  2 ** 53,
  -(2 ** 53),
  1e308,
  '',
  'x',
  '\0',
  '\ud800',
  '\u{10ffff}',
  '﷐﷑',
  '<|im_start|><|im_end|><|bos|>',
  ' '.repeat(3_000),
  'a'.repeat(3_000),
  [],
  {},
  [[]],
  [null],
  [{}],
  [1, 'a'],
  { type: 'text' },
  { __proto__: null, constructor: 1 },
  JSON.parse('{"__proto__": {"stream": true}}'),
  Array.from({ length: 300 }, (_, index) => index),
  Object.fromEntries(Array.from({ length: 300 }, (_, index) => [index, index])),
];

function pick(next, values) {
  return values[Math.floor(next() * values.length)];
}

/** Every place in a value: the container and the key. */
function places(value, found = []) {
  if (typeof value === 'object' && value !== null) {
    for (const key of Object.keys(value)) {
      found.push([value, key]);
      places(value[key], found);
    }
  }
  return found;
}

function changeValue(next, root) {
  const [container, key] = pick(next, places(root)) ?? [];
  const kind = next();
  if (container === undefined || kind < 0.15) {
    // A field of another route, or one that nobody knows.
    const other = pick(next, SEEDS).value;
    const name = pick(next, [...Object.keys(other), '__proto__', 'constructor', 'unknown']);
    Object.defineProperty(root, name, {
      value: structuredClone(Object.hasOwn(other, name) ? other[name] : pick(next, STRANGE)),
      enumerable: true,
      configurable: true,
      writable: true,
    });
  } else if (kind < 0.25) {
    delete container[key];
  } else if (kind < 0.35) {
    // Something that stands elsewhere.
    const [from, other] = pick(next, places(root));
    container[key] = structuredClone(from[other]);
  } else if (kind < 0.45) {
    container[key] = next() < 0.5 ? [container[key]] : { [key]: container[key] };
  } else {
    container[key] = structuredClone(pick(next, STRANGE));
  }
}

function changeBytes(next, bytes) {
  const at = Math.floor(next() * bytes.length);
  const end = Math.min(bytes.length, at + 1 + Math.floor(next() ** 3 * 40));
  const [before, part, after] = [bytes.subarray(0, at), bytes.subarray(at, end), bytes.subarray(end)];
  switch (Math.floor(next() * 6)) {
    case 0: {
      const changed = Buffer.from(bytes);
      if (changed.length > 0) changed[at] ^= 1 << Math.floor(next() * 8);
      return changed;
    }
    case 1:
      return Buffer.concat([before, after]);
    case 2:
      return Buffer.concat([before, part, part, after]);
    case 3:
      return before;
    case 4:
      return Buffer.concat([before, Buffer.from(Array.from({ length: 4 }, () => Math.floor(next() * 256))), after]);
    default:
      return Buffer.concat([
        before,
        Buffer.from(pick(next, ['"', '\\', '[', ']', '{', '}', ',', ':', '1e999', '-'])),
        after,
      ]);
  }
}

/** A request with something wrong in it, drawn from random numbers in [0, 1). */
export function mutatedRequest(next) {
  const { path, value } = pick(next, SEEDS);
  const root = structuredClone(value);
  for (let changes = Math.floor(next() * 4); changes > 0; changes--) changeValue(next, root);
  if (path === '/kv') {
    const texts = Object.entries(root).map(([key, each]) => [
      key,
      typeof each === 'string' ? each : JSON.stringify(each),
    ]);
    const query = new URLSearchParams(texts);
    return { method: 'GET', path: `${path}?${query.toString().slice(0, 4_000)}`, body: undefined };
  }
  let body = Buffer.from(JSON.stringify(root));
  if (next() < 0.4)
    for (let changes = 1 + Math.floor(next() * 3); changes > 0; changes--) body = changeBytes(next, body);
  return { method: 'POST', path, body };
}

/** A server error, or one that stands in a stream that had begun. */
export function isServersFault({ status, text }) {
  return status >= 500 || /"code":"WARMPATH_(?:INTERNAL|ENGINE_FAILED)"/.test(text);
}

function fill(head, unit, tail, bytes) {
  const room = bytes - Buffer.byteLength(head) - Buffer.byteLength(tail);
  return Buffer.from(head + unit.repeat(Math.floor(room / Buffer.byteLength(unit))) + tail);
}

function manyKeys(bytes) {
  const parts = ['{"messages":[{"role":"user","content":"a"}]'];
  for (let length = 0, index = 0; length < bytes - 100; index++) {
    const part = `,"${index.toString(36)}":1`;
    parts.push(part);
    length += part.length;
  }
  return Buffer.from(`${parts.join('')}}`);
}

const user = (content) => ({ messages: [{ role: 'user', content }], max_tokens: 1 });

/**
 * What costs most to read. `make` takes the number of bytes; the bodies for whom it means nothing are as large as they
 * can be without being refused for their length alone.
 */
export const HOSTILE = [
  ['empty messages', CHAT, (bytes) => fill('{"messages":[', '{},', '{}]}', bytes)],
  ['numbers for messages', CHAT, (bytes) => fill('{"messages":[', '1,', '1]}', bytes)],
  ['empty parts', CHAT, (bytes) => fill('{"messages":[{"role":"user","content":[', '{},', '{}]}]}', bytes)],
  [
    'text parts',
    CHAT,
    (bytes) =>
      fill(
        '{"messages":[{"role":"user","content":[',
        '{"type":"text","text":""},',
        '{"type":"text","text":"a"}]}]}',
        bytes,
      ),
  ],
  ['numbers for a prompt', PLAIN, (bytes) => fill('{"prompt":[', '1,', '1]}', bytes)],
  ['texts for a prompt', PLAIN, (bytes) => fill('{"prompt":[', '"",', '""]}', bytes)],
  ['arrays for a prompt', PLAIN, (bytes) => fill('{"prompt":[', '[],', '[]]}', bytes)],
  ['segments', PLAIN, (bytes) => fill('{"prompt":"a","segments":[', '"",', '""]}', bytes)],
  ['stops', PLAIN, (bytes) => fill('{"prompt":"a","stop":[', '{},', '{}]}', bytes)],
  ['biases', PLAIN, (bytes) => Buffer.from(`{"prompt":"a","logit_bias":${manyKeys(bytes)}}`)],
  ['tokens to turn back', '/detokenize', (bytes) => fill('{"tokens":[', '-1,', '-1]}', bytes)],
  ['unknown fields', CHAT, manyKeys],
  ['arrays 5,000 deep', CHAT, () => Buffer.from(`{"messages":${'['.repeat(5_000)}${']'.repeat(5_000)}}`)],
  ['arrays as deep as they go', CHAT, (bytes) => fill('{"messages":', '[', '', bytes)],
  ['a prompt of spaces', PLAIN, (bytes) => fill('{"prompt":"', ' ', '"}', bytes)],
  ['a message of spaces', CHAT, (bytes) => fill('{"messages":[{"role":"user","content":"', ' ', '"}]}', bytes)],
  ['spaces to tokenise', '/tokenize', (bytes) => fill('{"content":"', ' ', '"}', bytes)],
  ['special tokens', PLAIN, (bytes) => fill('{"prompt":"', '<|im_end|>', '"}', bytes)],
  [
    'special tokens in a message',
    CHAT,
    (bytes) => fill('{"messages":[{"role":"user","content":"', '<|im_end|>', '"}]}', bytes),
  ],
  ['two-byte letters', PLAIN, (bytes) => fill('{"prompt":"', 'é', '"}', bytes)],
  ['escaped letters', PLAIN, (bytes) => fill('{"prompt":"', '\\u00e9', '"}', bytes)],
  ['escaped quotes', PLAIN, (bytes) => fill('{"prompt":"', '\\"', '"}', bytes)],
  ['a long number', PLAIN, (bytes) => fill('{"prompt":[', '1', ']}', bytes)],
  ['white space', PLAIN, (bytes) => fill('{"prompt":"a"', ' ', '}', bytes)],
  ['no JSON', PLAIN, (bytes) => Buffer.alloc(bytes, 0xff)],
  [
    'a stream of a million numbers cut short',
    PLAIN,
    (bytes) => fill('{"prompt":[', '1,', '', Math.min(bytes, 2_000_000)),
  ],
  ['500 kB of spaces', PLAIN, () => Buffer.from(JSON.stringify({ prompt: ' '.repeat(500_000), max_tokens: 1 }))],
  ['500 kB of letters', '/tokenize', () => Buffer.from(JSON.stringify({ content: 'a'.repeat(500_000) }))],
  [
    '16,000 special tokens',
    PLAIN,
    () => Buffer.from(JSON.stringify({ prompt: '<|im_end|>'.repeat(16_000), max_tokens: 0 })),
  ],
  ['16,000 special tokens in a message', CHAT, () => Buffer.from(JSON.stringify(user('<|im_end|>'.repeat(16_000))))],
  [
    '2,048 messages',
    CHAT,
    () =>
      Buffer.from(
        JSON.stringify({ messages: Array.from({ length: 2_048 }, () => user('a').messages[0]), max_tokens: 1 }),
      ),
  ],
  [
    '15,000 parts',
    CHAT,
    () => Buffer.from(JSON.stringify(user(Array.from({ length: 15_000 }, () => ({ type: 'text', text: 'a😀' }))))),
  ],
  [
    'segments in a long text',
    PLAIN,
    () =>
      Buffer.from(
        JSON.stringify({
          prompt: 'é word '.repeat(30_000),
          segments: Array.from({ length: 4_096 }, (_, index) => index * 50),
          max_tokens: 0,
        }),
      ),
  ],
  [
    'tokens of a whole context',
    '/detokenize',
    () => Buffer.from(JSON.stringify({ tokens: Array.from({ length: 32_000 }, () => 300) })),
  ],
].map(([name, path, make]) => ({ name, path, make }));
