// CPU a request of finding and ordering documents that stand in prompts, without HTTP. `node bench/recognised.js`,
// after a build.
import { arrange, observe, ServedHistory } from '@warmpath/core';
import { chatApi } from '../dist/apis/prompt-apis.js';
import { ConversationMemory, MemoryConversationStore } from '../dist/conversation/conversation-memory.js';
import { RequestLog } from '../dist/observe/request-log.js';
import { arrangeInPlace, rememberOrders } from '../dist/prompt/arrange-in-place.js';
import { formedBlocks, markedBlocks, recogniseRequest } from '../dist/prompt/find-documents.js';
import { draws, prose } from './draw.js';

const TENANT = 'bench';
const next = draws();
const documents = Array.from({ length: 60 }, (_, i) => `<document id="doc-${i}">\n${prose(next, 210)}\n</document>\n`);

function prompt() {
  const pool = documents.slice();
  const chosen = Array.from({ length: 20 }, () => pool.splice(next(pool.length), 1)[0]);
  return { model: 'm', messages: [{ role: 'user', content: `${chosen.join('')}Question?` }] };
}

/** 50 turns of an agent, each with the result of a search. */
function conversation(perTurn) {
  const messages = [{ role: 'system', content: 'Search, then answer.' }];
  for (let turn = 0; turn < 50; turn++) {
    const found = Array.from({ length: perTurn }, () => documents[next(documents.length)]);
    const call = { id: `c${turn}`, type: 'function', function: { name: 'search', arguments: '{}' } };
    messages.push({ role: 'user', content: `Question ${turn}?` });
    messages.push({ role: 'assistant', content: null, tool_calls: [call] });
    messages.push({ role: 'tool', tool_call_id: call.id, content: `<documents>\n${found.join('')}</documents>` });
    if (turn < 49) messages.push({ role: 'assistant', content: `Answer ${turn}.` });
  }
  return { model: 'm', messages };
}

/** Microseconds of CPU a call. */
function cpu(call, bodies) {
  for (let i = 0; i < 300; i++) call(bodies[i % bodies.length], i);
  const runs = Math.min(2_000, Math.ceil(4e7 / bodies[0].length));
  const before = process.cpuUsage();
  for (let i = 0; i < runs; i++) call(bodies[i % bodies.length], i);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / runs;
}

const formed = (texts) => formedBlocks(texts, { refersToParts: false });

function inPlace(find) {
  const memory = new ConversationMemory(new MemoryConversationStore({}), 33_554_432);
  const history = new ServedHistory();
  return (body, now) => {
    const recognised = recogniseRequest(Buffer.from(body), chatApi, { find });
    if (recognised === undefined) return;
    const arrangeBlock = (block) => arrange({ ...block, hints: false }, history, now);
    const { blocks } = arrangeInPlace(recognised, { tenant: TENANT, memory, arrange: arrangeBlock });
    rememberOrders(recognised, blocks, { tenant: TENANT, memory });
    for (const { arrangement } of blocks) {
      if (arrangement !== undefined) observe({ kind: 'completed', arrangement, now }, history);
    }
  };
}

const bodies = (make, count = 50) => Array.from({ length: count }, () => Buffer.from(JSON.stringify(make())));
const prompts = bodies(prompt);
const log = new RequestLog(256, 64);
const CASES = [
  ['20 of 60 documents, marked', prompts, inPlace(markedBlocks)],
  ['20 of 60 documents, by form', prompts, inPlace(formed)],
  ['prose, by form', bodies(() => ({ messages: [{ role: 'user', content: prose(next, 4_500) }] })), inPlace(formed)],
  ['agent, 50 turns, by form', bodies(() => conversation(1)), inPlace(formed)],
  ['agent, 50 longer turns, by form', bodies(() => conversation(6), 20), inPlace(formed)],
  [
    '20 of 60 documents, prompts compared',
    prompts,
    (body, i) => log.compare(TENANT, String(i), { body: String(body), api: chatApi }),
  ],
];
for (const [name, given, call] of CASES) {
  const kilobytes = (given[0].length / 1_000).toFixed(0).padStart(4);
  process.stdout.write(`${name.padEnd(40)} ${kilobytes} KB ${cpu(call, given).toFixed(0).padStart(6)} µs CPU\n`);
}
