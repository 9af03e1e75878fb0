// How much of the program one request passes: files and functions of ours that run from the first byte that reaches
// the gateway to the record of its answer, and the source lines of each package. `npm run footprint -- --files` names
// the files.
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Session } from 'node:inspector/promises';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startGateway } from '@warmpath/gateway';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const PACKAGES = join(ROOT, 'packages');

/** Requests before the one that is measured: what runs only once is not part of a request's way. */
const WARM_UP_REQUESTS = 10;

/** Requests that are measured. What does not run in each of them belongs to a timer, not to a request. */
const MEASURED_REQUESTS = 5;

/** Milliseconds for what is learned of a prompt behind its answer. */
const BEHIND_ANSWER_MS = 20;

const DOCUMENTS = ['Velka weighs 42 kg.', 'Orsin weighs 17 kg.', 'Tamun is teal.', 'Brenn is red.', 'Halde is old.'];
const QUESTION = 'How heavy is Velka?';

/** Documents of a request, in another order each time, so that there is something to decide. */
function shuffled(turn) {
  const rotated = DOCUMENTS.map((content, place) => ({ id: `document-${place}`, content }));
  return [...rotated.slice(turn % DOCUMENTS.length), ...rotated.slice(0, turn % DOCUMENTS.length)];
}

/** Bodies by the kind of request, each for a turn. */
const BODIES = {
  'plain prompt': () => ({ messages: [{ role: 'user', content: QUESTION }] }),
  'field `documents`': (turn) => ({ messages: [{ role: 'user', content: QUESTION }], documents: shuffled(turn) }),
  'documents in the text': (turn) => {
    const tags = shuffled(turn).map(({ id, content }) => `<document id="${id}">\n${content}\n</document>`);
    const text = `<warmpath-documents>\n${tags.join('\n')}\n</warmpath-documents>\n\n${QUESTION}`;
    return { messages: [{ role: 'user', content: text }] };
  },
};

const session = new Session();
session.connect();
await session.post('Profiler.enable');
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });

const engine = createServer((request, response) => {
  request.resume().on('end', () => {
    const usage = { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cached_tokens: 50 } };
    const choices = [{ index: 0, message: { role: 'assistant', content: '42 kg' }, finish_reason: 'stop' }];
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ object: 'chat.completion', model: 'm', choices, usage }));
  });
});
await once(engine.listen(0, '127.0.0.1'), 'listening');
let onRequest = () => {};
const gateway = await startGateway(
  {
    server: { port: 0 },
    upstream: { url: `http://127.0.0.1:${engine.address().port}` },
    log: { level: 'silent' },
  },
  { onRequest: (report) => onRequest(report) },
);

const withFiles = process.argv.includes('--files');
print('| one request | files | functions |\n| --- | --: | --: |');
const lists = [];
for (const [kind, bodyOf] of Object.entries(BODIES)) {
  for (let turn = 0; turn < WARM_UP_REQUESTS; turn++) await ask(bodyOf(turn));
  let called;
  for (let turn = 0; turn < MEASURED_REQUESTS; turn++) {
    await session.post('Profiler.takePreciseCoverage');
    await ask(bodyOf(turn));
    const now = calledFunctions((await session.post('Profiler.takePreciseCoverage')).result);
    called = new Set([...(called ?? now)].filter((name) => now.has(name)));
  }
  const files = new Map();
  for (const name of called) {
    const path = name.slice(0, name.lastIndexOf(':'));
    files.set(path, (files.get(path) ?? 0) + 1);
  }
  print(`| ${kind} | ${files.size} | ${called.size} |`);
  lists.push([kind, files]);
}
await gateway.close();
engine.close();

if (withFiles) {
  for (const [kind, files] of lists) {
    print(`\n${kind}:`);
    for (const [path, called] of [...files].sort()) print(`${String(called).padStart(5)}  ${path}`);
  }
}

print('\n| package | files | source lines |\n| --- | --: | --: |');
for (const name of readdirSync(PACKAGES).sort()) {
  const sources = sourcesOf(join(PACKAGES, name, 'src'));
  if (sources.length === 0) continue;
  const lines = sources.reduce((sum, file) => sum + readFileSync(file, 'utf8').split('\n').length - 1, 0);
  print(`| ${name} | ${sources.length} | ${lines} |`);
}

/** Functions of ours that ran, as `path of the source file:offset in the built file`. */
function calledFunctions(scripts) {
  const called = new Set();
  for (const { url, functions } of scripts) {
    if (!url.startsWith('file:')) continue;
    const path = relative(PACKAGES, fileURLToPath(url));
    if (path.startsWith('..')) continue;
    const source = path.replace('/dist/', '/src/').replace(/\.js$/, '.ts');
    for (const { ranges } of functions) {
      if (ranges[0].count > 0) called.add(`${source}:${ranges[0].startOffset}`);
    }
  }
  return called;
}

function print(line) {
  process.stdout.write(`${line}\n`);
}

/** Sends a chat request, and waits until its record has been written and what runs behind the answer is over. */
async function ask(body) {
  const recorded = new Promise((resolve) => {
    onRequest = resolve;
  });
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', ...body }),
  });
  if (!response.ok) throw new Error(await response.text());
  await response.text();
  await recorded;
  await sleep(BEHIND_ANSWER_MS);
}

function sourcesOf(folder) {
  try {
    return readdirSync(folder, { recursive: true })
      .filter((name) => /\.tsx?$/.test(name))
      .map((name) => join(folder, name));
  } catch {
    return [];
  }
}
