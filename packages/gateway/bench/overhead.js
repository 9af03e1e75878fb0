// What the gateway costs: each request once directly and once through the gateway, in turns, so that a noisy neighbour
// meets both alike. CPU a request stands beside that of a plain proxy, which shows how busy the machine was. `node bench/overhead.js [--json] [--quick]`.
import { Pool } from 'undici';
import { draws, prose } from './draw.js';
import { start, stopAll, usageOf } from './processes.js';

const QUICK = process.argv.includes('--quick');
const REQUESTS = QUICK ? 400 : 3_000;
const WARM_UP = QUICK ? 200 : 1_000;
const STREAMS = QUICK ? 10 : 40;
const CONCURRENT = 32;
const MANY_STREAMS = 512;
const PATH = '/v1/chat/completions';

const small = [JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Say hello.' }] })];

/** Bodies of about 30 KB: 20 of 60 documents, drawn so that requests overlap. Deterministic. */
function ragBodies() {
  const next = draws();
  const documents = Array.from({ length: 60 }, (_, i) => {
    return { id: `doc-${i}`, title: `Document ${i}`, content: prose(next, 210) };
  });
  return Array.from({ length: 200 }, (_, i) => {
    const pool = documents.slice();
    const chosen = Array.from({ length: 20 }, () => pool.splice(next(pool.length), 1)[0]);
    const messages = [
      { role: 'system', content: 'Answer from the documents, and say so when they do not tell.' },
      { role: 'user', content: `Question number ${i}?` },
    ];
    return JSON.stringify({ model: 'm', messages, documents: chosen, temperature: 0 });
  });
}

/** Bodies as the gateway would send them: documents inside the prompt. What the direct request carries. */
function asPrompts(bodies) {
  return bodies.map((body) => {
    const { documents, ...rest } = JSON.parse(body);
    const text = documents.map(
      ({ id, title, content }) => `<document id="${id}" title="${title}">\n${content}\n</document>\n`,
    );
    rest.messages[1].content = text.join('') + rest.messages[1].content;
    return JSON.stringify(rest);
  });
}

async function exchange(pool, body) {
  const started = performance.now();
  const response = await pool.request({
    method: 'POST',
    path: PATH,
    headers: { 'content-type': 'application/json' },
    body,
  });
  await response.body.arrayBuffer();
  return performance.now() - started;
}

/** Milliseconds until the first chunk, and between chunks. */
async function stream(pool, body) {
  const started = performance.now();
  const response = await pool.request({
    method: 'POST',
    path: PATH,
    headers: { 'content-type': 'application/json' },
    body,
  });
  const gaps = [];
  let last = started;
  let text = '';
  for await (const chunk of response.body) {
    const now = performance.now();
    gaps.push(now - last);
    last = now;
    text += chunk.toString('latin1');
  }
  return { ttft: gaps[0], gaps: gaps.slice(1), complete: text.endsWith('[DONE]\n\n') };
}

function quantile(values, q) {
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
}

/** With `plain`, each request goes through the plain proxy as well: its p99 shows what the machine did to all of them. */
async function latency({ direct, through, plain }, directBodies, bodies) {
  const times = { direct: [], through: [], plain: [] };
  for (let i = 0; i < WARM_UP + REQUESTS; i++) {
    const ofDirect = await exchange(direct, directBodies[i % directBodies.length]);
    const ofThrough = await exchange(through, bodies[i % bodies.length]);
    const ofPlain = plain === undefined ? Number.NaN : await exchange(plain, bodies[i % bodies.length]);
    if (i < WARM_UP) continue;
    times.plain.push(ofPlain);
    times.direct.push(ofDirect);
    times.through.push(ofThrough);
  }
  return {
    directP50: quantile(times.direct, 0.5),
    throughP50: quantile(times.through, 0.5),
    addedP50: quantile(times.through, 0.5) - quantile(times.direct, 0.5),
    addedP99: quantile(times.through, 0.99) - quantile(times.direct, 0.99),
    plainAddedP99: quantile(times.plain, 0.99) - quantile(times.direct, 0.99),
  };
}

/** Bodies whose every document is new: the gateway has nothing to remember them by. */
function neverSeen(bodies) {
  let fresh = 0;
  return {
    length: bodies.length,
    at: (i) => {
      const mark = fresh++;
      return bodies[i].replace(/"(id|content)":"/g, (start) => `${start}n${mark}-`);
    },
  };
}

async function cpuPerRequest(gateway, pool, bodies) {
  const total = REQUESTS * 2;
  const send = async () => {
    let sent = 0;
    const worker = async () => {
      while (sent < total) await exchange(pool, bodies.at(sent++ % bodies.length));
    };
    await Promise.all(Array.from({ length: CONCURRENT }, worker));
  };
  // As many again beforehand: what compiling and growing the heap cost is paid once, and not by a request.
  await send();
  const before = await usageOf(gateway);
  const started = performance.now();
  await send();
  const seconds = (performance.now() - started) / 1_000;
  const after = await usageOf(gateway);
  return { us: (after.cpuUs - before.cpuUs) / total, perSecond: total / seconds };
}

/** Each stream through the plain proxy as well: after a third of a second without work, every program is slower to begin. */
async function streams({ direct, through, plain }, body) {
  const results = { direct: [], through: [], plain: [] };
  for (let i = 0; i < STREAMS; i++) {
    results.direct.push(await stream(direct, body));
    results.through.push(await stream(through, body));
    results.plain.push(await stream(plain, body));
  }
  const ttft = (side) =>
    quantile(
      results[side].map((result) => result.ttft),
      0.5,
    );
  const gap = (side) =>
    quantile(
      results[side].flatMap((result) => result.gaps),
      0.99,
    );
  return {
    addedTtftP50: ttft('through') - ttft('direct'),
    addedGapP99: gap('through') - gap('direct'),
    plainAddedTtftP50: ttft('plain') - ttft('direct'),
    plainAddedGapP99: gap('plain') - gap('direct'),
  };
}

async function manyStreams(gateway, pool, body) {
  const results = await Promise.all(Array.from({ length: MANY_STREAMS }, () => stream(pool, body)));
  const { residentBytes } = await usageOf(gateway);
  return { complete: results.filter(({ complete }) => complete).length, residentMiB: residentBytes / 2 ** 20 };
}

async function measure() {
  const upstream = await start('upstream-process.js');
  const gateway = await start('gateway-process.js', upstream.url);
  const plain = await start('plain-proxy-process.js', upstream.url);
  const idle = await usageOf(gateway);
  const other = await start('gateway-process.js', upstream.url);
  const direct = new Pool(upstream.url, { connections: MANY_STREAMS });
  const through = new Pool(gateway.url, { connections: MANY_STREAMS });
  const throughPlain = new Pool(plain.url, { connections: CONCURRENT });
  const throughOther = new Pool(other.url, { connections: CONCURRENT });
  const rag = ragBodies();
  const streamBody = rag[0].replace('"temperature":0', '"stream":true');
  const result = {
    bodyBytes: rag[0].length,
    small: await latency({ direct, through, plain: throughPlain }, small, small),
    rag: await latency({ direct, through }, asPrompts(rag), rag),
    smallCpu: await cpuPerRequest(gateway, through, small),
    unknownSmallCpu: await cpuPerRequest(other, throughOther, small),
    ragCpu: await cpuPerRequest(gateway, through, rag),
    ragNewCpu: await cpuPerRequest(other, throughOther, neverSeen(rag)),
    plainSmallCpu: await cpuPerRequest(plain, throughPlain, small),
    plainRagCpu: await cpuPerRequest(plain, throughPlain, rag),
    stream: await streams({ direct, through, plain: throughPlain }, streamBody),
    manyStreams: await manyStreams(gateway, through, streamBody),
    idleMiB: idle.residentBytes / 2 ** 20,
  };
  await Promise.all([direct.close(), through.close(), throughPlain.close(), throughOther.close()]);
  return result;
}

function print(result) {
  const rows = [
    ['small body, added p50', result.small.addedP50, 'ms', 0.3],
    ['small body, added p99', result.small.addedP99, 'ms', 1],
    ['  the same in a plain proxy', result.small.plainAddedP99, 'ms', undefined],
    ['small body, CPU a request', result.smallCpu.us, 'µs', 120],
    ['  the same of a tenant without conversations', result.unknownSmallCpu.us, 'µs', undefined],
    ['  the same in a plain proxy', result.plainSmallCpu.us, 'µs', undefined],
    [`${(result.bodyBytes / 1_000).toFixed(0)} KB RAG body, added p50`, result.rag.addedP50, 'ms', 0.8],
    ['RAG body, added p99', result.rag.addedP99, 'ms', undefined],
    ['RAG body, CPU a request', result.ragCpu.us, 'µs', 400],
    ['  the same, every document for the first time', result.ragNewCpu.us, 'µs', undefined],
    ['  the same in a plain proxy', result.plainRagCpu.us, 'µs', undefined],
    ['stream, added TTFT p50', result.stream.addedTtftP50, 'ms', 2],
    ['  the same in a plain proxy', result.stream.plainAddedTtftP50, 'ms', undefined],
    ['stream, added gap between chunks p99', result.stream.addedGapP99, 'ms', 1],
    ['  the same in a plain proxy', result.stream.plainAddedGapP99, 'ms', undefined],
    [`complete of ${MANY_STREAMS} streams at once`, result.manyStreams.complete, '', MANY_STREAMS],
    ['resident memory, idle', result.idleMiB, 'MiB', 90],
    ['resident memory, under load', result.manyStreams.residentMiB, 'MiB', 200],
  ];
  console.log(`${'measured'.padEnd(48)}${'value'.padStart(12)}${'budget'.padStart(12)}`);
  for (const [name, value, unit, budget] of rows) {
    const shown = `${value.toFixed(unit === 'ms' ? 3 : 0)} ${unit}`.trim();
    console.log(
      name.padEnd(48) + shown.padStart(12) + (budget === undefined ? '' : `${budget} ${unit}`.trim()).padStart(12),
    );
  }
  console.log(
    `\nat ${CONCURRENT} at once: ${result.smallCpu.perSecond.toFixed(0)} small, ${result.ragCpu.perSecond.toFixed(0)} RAG requests a second (client, gateway and upstream share this machine)`,
  );
}

try {
  const result = await measure();
  if (process.argv.includes('--json')) console.log(JSON.stringify(result));
  else print(result);
} finally {
  stopAll();
}
