// What de-duplication saves in conversations, on a real engine: MTRAG's questions in their order, BM25 over its
// passages.
//
// `npm run bench:conversations -w packages/cli -- --data <folder>/mtrag-un/tasks.jsonl [--conversations 20] [--top-k 5]
//   [--together 8] [--model random:1m] [--context-tokens 131072] [--json <file>]`
//
// Every strategy has an engine process of its own that starts cold, behind a gateway of its own; `--together`
// conversations take turns, one request at a time. Answers are those of the data, so that all strategies are asked the
// very same things. Counts are the engine's own. Conversations differ more than strategies do, so each strategy is also
// set beside another conversation by conversation: the mean difference of a turn, each conversation counting once, with
// its standard error over conversations. The model does not matter to them (the demo model holds 4,096 tokens, too few
// for these); times are those of the client, and mean something on an idle machine only.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { renderDocuments } from '@warmpath/core/internal';
import { spawnEngine } from '@warmpath/engine';
import { startGateway } from '@warmpath/gateway';
import { estimate, mtragDialogues } from '@warmpath/lab';
import { modelPath } from '../../engine/bench/random-model/dist/model-path.js';
import { EngineClient } from '../dist/engine-client.js';

const { values } = parseArgs({
  options: {
    data: { type: 'string' },
    conversations: { type: 'string', default: '20' },
    'top-k': { type: 'string', default: '5' },
    together: { type: 'string', default: '8' },
    model: { type: 'string', default: 'random:1m' },
    'context-tokens': { type: 'string', default: '131072' },
    json: { type: 'string' },
  },
});
if (values.data === undefined) throw new Error('--data <tasks.jsonl> is missing');

const SYSTEM = 'Answer the question using only the provided documents.';
const RETRIEVAL = { policy: 'retrieval' };
/** No conversation is named, so that the gateway remembers none. */
const OFF = { gateway: { arrange: RETRIEVAL }, warmpath: {} };

/** `inline`: the client writes documents into its own messages and keeps them there. */
const STRATEGIES = [
  { name: 'forwarding', ...OFF, about: 'the history without documents; those of this turn in retrieval order' },
  {
    name: 'appended',
    ...OFF,
    inline: true,
    about: 'the client keeps all documents it ever sent, in retrieval order',
  },
  { name: 'replayed', gateway: {}, warmpath: { deduplicate: false }, about: 'earlier turns as they were rendered' },
  { name: 'deduplicated', gateway: { arrange: { hints: false } }, about: 'and what is still visible left out' },
  { name: 'deduplicated, hints', gateway: {}, about: 'and said where it stands (the default)' },
];

const dialogues = (await mtragDialogues(values.data, Number(values['top-k']))).slice(0, Number(values.conversations));
const results = [];
for (const strategy of STRATEGIES) {
  results.push(await run(strategy));
  const { name } = strategy;
  const { uncachedPerTurn, turns } = results.at(-1);
  console.error(`${name}: ${uncachedPerTurn.toFixed(1)} uncached tokens a turn, ${turns} turns`);
}
print(results);
if (values.json !== undefined)
  writeFileSync(values.json, `${JSON.stringify({ settings: values, results }, undefined, 2)}\n`);

async function run(strategy) {
  const engine = await spawnEngine({
    model: await modelPath(values.model),
    contextTokens: Number(values['context-tokens']),
    port: 0,
  });
  const gateway = await startGateway({
    ...strategy.gateway,
    server: { port: 0 },
    upstream: { url: engine.url },
    log: { level: 'silent' },
  });
  const client = new EngineClient({ url: gateway.url });
  const measured = [];
  try {
    for (const { dialogue, place } of takingTurns(dialogues, Number(values.together))) {
      measured.push(await ask(client, engine.model.name, strategy, dialogue, place));
    }
    const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
    const { name, about } = strategy;
    const conversations = perConversation(measured);
    return { strategy: name, about, ...figuresOf(measured), ...countersOf(metrics), conversations };
  } finally {
    await client.close();
    await gateway.close();
    await engine.stop();
  }
}

/** The conversations side by side: so many at a time, each in turn; when one is over the next begins. */
function* takingTurns(all, together) {
  const waiting = all.map((dialogue) => ({ dialogue, place: 0 }));
  const open = waiting.splice(0, together);
  for (let next = 0; open.length > 0; ) {
    const one = open[next];
    yield { dialogue: one.dialogue, place: one.place++ };
    if (one.place < one.dialogue.turns.length) next = (next + 1) % open.length;
    else {
      open.splice(next, 1, ...waiting.splice(0, 1));
      next %= Math.max(1, open.length);
    }
  }
}

async function ask(client, model, { inline = false, warmpath }, dialogue, place) {
  const turn = (at) => dialogue.turns[at];
  const documentsOf = ({ passages }) => passages.map(({ id, title, content }) => ({ id, title, content }));
  const questionOf = (at) => {
    if (!inline) return turn(at).question;
    const documents = documentsOf(turn(at)).map((document) => ({ ...document, label: document.id }));
    return renderDocuments(documents, 'xml') + turn(at).question;
  };
  const messages = [{ role: 'system', content: SYSTEM }];
  for (let at = 0; at <= place; at++) {
    messages.push({ role: 'user', content: questionOf(at) });
    if (at < place) messages.push({ role: 'assistant', content: turn(at).answer ?? '' });
  }
  const session = warmpath === OFF.warmpath ? {} : { session: dialogue.id };
  const own = inline ? {} : { documents: documentsOf(turn(place)), warmpath: { ...session, ...warmpath } };
  const body = { model, max_tokens: 1, temperature: 0, messages, ...own };
  const { ttftMs, promptTokens, cachedTokens } = await client.measureChat(body, AbortSignal.timeout(600_000));
  return { conversation: dialogue.id, ttftMs, promptTokens, cachedTokens };
}

function figuresOf(measured) {
  const sum = (field) => measured.reduce((total, one) => total + one[field], 0);
  const times = measured.map(({ ttftMs }) => ttftMs).sort((a, b) => a - b);
  const turns = measured.length;
  const [promptTokens, cachedTokens] = [sum('promptTokens'), sum('cachedTokens')];
  return {
    turns,
    promptTokens,
    cachedTokens,
    cachedShare: cachedTokens / promptTokens,
    uncachedPerTurn: (promptTokens - cachedTokens) / turns,
    ttftMs: { mean: sum('ttftMs') / turns, p50: times[Math.floor(turns / 2)], p95: times[Math.floor(turns * 0.95)] },
  };
}

/** Means of a turn, for each conversation, in the order of the data. */
function perConversation(measured) {
  return dialogues.map(({ id }) => {
    const { turns, uncachedPerTurn, ttftMs } = figuresOf(measured.filter(({ conversation }) => conversation === id));
    return { id, turns, uncachedPerTurn, ttftMs: ttftMs.mean };
  });
}

/** How much more than the baseline, conversation by conversation. */
function difference(one, baseline, field) {
  return estimate(one.conversations.map((conversation, i) => conversation[field] - baseline.conversations[i][field]));
}

function countersOf(metrics) {
  const read = (name) => Number(new RegExp(`^warmpath_${name} (\\S+)$`, 'm').exec(metrics)?.[1] ?? 0);
  return { documents: read('documents_total'), references: read('documents_deduplicated_total') };
}

function print(all) {
  const forwarded = all[0].uncachedPerTurn;
  const rows = all.map((one) => ({
    strategy: one.strategy,
    turns: one.turns,
    'prompt tokens a turn': Math.round(one.promptTokens / one.turns),
    'cached share': one.cachedShare.toFixed(3),
    'uncached a turn': one.uncachedPerTurn.toFixed(1),
    'against forwarding': `${((one.uncachedPerTurn / forwarded - 1) * 100).toFixed(1)} %`,
    'TTFT ms mean / p50 / p95': [one.ttftMs.mean, one.ttftMs.p50, one.ttftMs.p95]
      .map((ms) => ms.toFixed(1))
      .join(' / '),
    'referred to': `${one.references} of ${one.documents}`,
  }));
  console.table(rows);
  printDifferences(all);
  const [plain, hinted] = all.slice(-2);
  console.log(
    `hints cost ${((hinted.promptTokens - plain.promptTokens) / hinted.turns).toFixed(1)} prompt tokens a turn,`,
  );
  console.log(`${(hinted.uncachedPerTurn - plain.uncachedPerTurn).toFixed(1)} of them uncached`);
}

/** Every strategy against forwarding, and against the one before it, which it adds to. */
function printDifferences(all) {
  const pairs = all.slice(1).flatMap((one, i) =>
    i === 0
      ? [[one, all[0]]]
      : [
          [one, all[0]],
          [one, all[i]],
        ],
  );
  const show = ({ mean, se }, digits) => `${mean.toFixed(digits)} ± ${se.toFixed(digits)}`;
  console.log(`paired differences of a turn, mean over ${dialogues.length} conversations ± standard error`);
  console.table(
    pairs.map(([one, baseline]) => ({
      strategy: one.strategy,
      against: baseline.strategy,
      'uncached tokens': show(difference(one, baseline, 'uncachedPerTurn'), 1),
      'TTFT ms': show(difference(one, baseline, 'ttftMs'), 2),
    })),
  );
}
