import { type Attack, type AttackedGateway, post, problemsOf } from './attack.js';

/** Every route that reads a body. */
const ROUTES = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/messages',
  '/v1/responses',
  '/v1/arrange',
  '/v1/plan',
  '/v1/warmup',
  '/v1/observe',
  '/v1/messages/count_tokens',
] as const;

/** Just below what a body may have. */
const BYTES = 33_000_000;
const SMALL_BYTES = 1_000_000;
const DOCUMENTS = '"documents":[{"id":"a","content":"The weight of Velka is 42 kg."}]';
const DEPTH = 5_000;

/** A body of about so many bytes, the member that has them under each name that a route may look for. */
function filled(member: string, item: string, bytes: number): string {
  const items = `${item},`.repeat(Math.floor(bytes / (item.length + 1)));
  return `{"model":"m",${DOCUMENTS},"${member}":[${items}${item}]}`;
}

/** Bodies that take many times their size once they are parsed. */
const HUGE: readonly (readonly [name: string, body: (bytes: number) => string])[] = [
  ['messages: [1,1,1,…]', (bytes) => filled('messages', '1', bytes)],
  ['messages: [{},{},…]', (bytes) => filled('messages', '{}', bytes)],
  ['input: [1,1,1,…]', (bytes) => filled('input', '1', bytes)],
  ['documents: [{},{},…]', (bytes) => `{"model":"m","documents":[${'{},'.repeat(bytes / 3)}{}]}`],
  ['contexts: [[],[],…]', (bytes) => filled('contexts', '[]', bytes)],
  [
    'millions of keys',
    (bytes) => {
      const keys = Array.from({ length: Math.floor(bytes / 13) }, (_, index) => `"k${1_000_000 + index}":0`);
      return `{"model":"m",${DOCUMENTS},"messages":[{"role":"user","content":"Q"}],${keys.join(',')}}`;
    },
  ],
];

const ARRANGED_ROUTES = ['/v1/chat/completions', '/v1/messages', '/v1/responses', '/v1/arrange', '/v1/plan'];

async function sendEverywhere(gateway: AttackedGateway, routes: readonly string[], body: string): Promise<string[]> {
  const problems: string[] = [];
  for (const route of routes) problems.push(...problemsOf(route, await post(gateway.url + route, body)));
  return problems;
}

const huge: readonly Attack[] = HUGE.map(([name, body]) => ({
  name: `33 MB of ${name}`,
  run: (gateway) => sendEverywhere(gateway, ARRANGED_ROUTES, body(gateway.isFull ? BYTES : SMALL_BYTES)),
}));

/** Where the nested value stands. */
const NESTED: readonly (readonly [name: string, body: (nested: string) => string])[] = [
  ['messages', (nested) => `{"model":"m",${DOCUMENTS},"messages":${nested},"input":${nested}}`],
  [
    'a message',
    (nested) =>
      `{"model":"m",${DOCUMENTS},"messages":[{"role":"user","content":${nested}}],"input":[{"role":"user","content":${nested}}]}`,
  ],
  [
    'tools',
    (nested) =>
      `{"model":"m","max_tokens":9,${DOCUMENTS},"tools":${nested},"messages":[{"role":"user","content":"Q"}],"input":"Q"}`,
  ],
  [
    'metadata of a document',
    (nested) =>
      `{"model":"m","max_tokens":9,"documents":[{"content":"x","metadata":{"x":${nested}}}],"messages":[{"role":"user","content":"Q"}],"input":"Q"}`,
  ],
  ['warmpath', (nested) => `{"model":"m","warmpath":${nested},"messages":[{"role":"user","content":"Q"}],"input":"Q"}`],
  [
    'cache_salt',
    (nested) => `{"model":"m","cache_salt":${nested},"messages":[{"role":"user","content":"Q"}],"input":"Q"}`,
  ],
  ['what a plan has', (nested) => `{"contexts":${nested},"id":${nested},"prompt":${nested}}`],
];

const FORMS = [
  ['arrays', `${'['.repeat(DEPTH)}${']'.repeat(DEPTH)}`],
  ['objects', `${'{"a":'.repeat(DEPTH)}1${'}'.repeat(DEPTH)}`],
] as const;

const nested: readonly Attack[] = FORMS.map(([form, value]) => ({
  name: `${form} nested 5,000 deep in every member on every route`,
  // With everything that reads a body.
  config: {
    upstream: { cacheSaltKey: 'a secret of the gateways' },
    recognise: 'auto',
    explain: { prompts: 'all' },
  },
  run: async (gateway) => {
    const problems: string[] = [];
    for (const [name, body] of NESTED) {
      const found = await sendEverywhere(gateway, ROUTES, body(value));
      problems.push(...found.map((problem) => `in ${name}: ${problem}`));
    }
    return problems;
  },
}));

/** Bodies whose form costs more than their size. */
export const LARGE_BODIES: readonly Attack[] = [...huge, ...nested];
