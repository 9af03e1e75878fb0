// How many blocks of KV events one core takes in, and whether memory stays flat: an engine with a full cache that
// stores prompts and drops the oldest, in batches as vLLM writes them, read as the gateway reads them.
// `node --expose-gc bench/kv-events.js [--blocks 2000000] [--json FILE]`, after a build.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { Encoder } from '@msgpack/msgpack';
import { EventStream } from '../dist/engines/kv-events/event-stream.js';
import { EngineEvents } from '../dist/engines/kv-residency.js';
import { draws } from './draw.js';

const { values } = parseArgs({ options: { blocks: { type: 'string', default: '2000000' }, json: { type: 'string' } } });
const BLOCKS = Number(values.blocks);
const BLOCK_TOKENS = 16;
/** Blocks of one prompt, and prompts of one batch: a step of an engine with some prompts. */
const PROMPT_BLOCKS = 32;
const PROMPTS = 4;
/** Prompts that the engine holds: 100,000 blocks. */
const HELD = 3_125;
const BAR = 50_000;
/** Batches that are written before they are read, so that writing them is not measured. */
const AT_ONCE = 500;

const next = draws();
const encoder = new Encoder({ useBigInt64: true });
const held = [];
let hashes = 0n;

/** Hashes of 64 bits, as engines have them. */
function newHash() {
  hashes++;
  return BigInt.asUintN(64, hashes * 0x9e3779b97f4a7c15n);
}

function batch() {
  const events = [];
  for (let i = 0; i < PROMPTS; i++) {
    const own = Array.from({ length: PROMPT_BLOCKS }, newHash);
    const tokens = Array.from({ length: PROMPT_BLOCKS * BLOCK_TOKENS }, () => next(150_000));
    events.push(['BlockStored', own, null, tokens, BLOCK_TOKENS, null, 'GPU']);
    held.push(own);
    if (held.length > HELD) events.push(['BlockRemoved', held.shift().toReversed(), 'GPU']);
  }
  return encoder.encode([0.5, events, 0]);
}

const sink = new EngineEvents({ now: () => 0, changed: () => {}, blockSize: () => {} });
const stream = new EventStream({ sink, replay: undefined });
let sequence = 0;
let read = 0;
let bytes = 0;
let cpuUs = 0;
const heaps = [];
while (read < BLOCKS) {
  const batches = Array.from({ length: AT_ONCE }, batch);
  const before = process.cpuUsage();
  for (const payload of batches) {
    stream.receive({ sequence: sequence++, payload });
    bytes += payload.length;
  }
  const { user, system } = process.cpuUsage(before);
  cpuUs += user + system;
  read += AT_ONCE * PROMPTS * PROMPT_BLOCKS;
  globalThis.gc?.();
  heaps.push(process.memoryUsage().heapUsed / 2 ** 20);
}
const { residency, anomalies } = sink;
const full = heaps.slice(Math.ceil(HELD / (AT_ONCE * PROMPTS) + 1));
const result = {
  blocks: read,
  blocksPerSecond: Math.round(read / (cpuUs / 1e6)),
  megabytesPerSecond: Math.round(bytes / cpuUs),
  mirrored: residency.blocks,
  anomalies: { ...anomalies, ...residency.anomalies },
  heapMiB: { whenFull: Math.round(full[0]), atTheEnd: Math.round(full.at(-1)) },
};
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(result, null, 1)}\n`);
console.log(`blocks stored ${read}, and as many removed but those held: ${residency.blocks}`);
console.log(`blocks stored a second of CPU: ${result.blocksPerSecond} (bar ${BAR}), ${result.megabytesPerSecond} MB/s`);
console.log(`heap with a full mirror: ${result.heapMiB.whenFull} MiB, at the end ${result.heapMiB.atTheEnd} MiB`);
if (globalThis.gc === undefined) console.log('Without --expose-gc the heap is not collected before it is weighed.');
