// What applications gain that know nothing of Warmpath: each before the engine alone, behind a gateway that recognises
// nothing, and behind gateways whose prompts a person allows after 60 questions, with labels that are kept or mapped.
// `npm run bench:frameworks -- [--only WORDS] [--arms NAMES] [--json] [--write]`, ten minutes. `--write` puts the table
// into docs/integrations/index.md. LangChain and LlamaIndex for Python run with the interpreter that PYTHON names, or
// in an environment that is made in `test/frameworks/.venv`.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as wait } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startGateway } from '@warmpath/gateway';
import { APPLICATIONS } from './applications.js';
import { bodyWitness, citingEngine } from './citing-engine.js';
import { MEASURED, QUESTIONS, QUESTIONS_BEFORE, QUESTIONS_BEHIND } from './questions.js';
import { tableOf } from './table.js';

/**
 * Arms of each application. `off` is the null run: with nothing recognised, nothing may be gained. Before a person
 * allows its prompts, the gateways of the last two ask, and change nothing.
 */
const ARMS = ['direct', 'off', 'allowed', 'mapped'];

const { values } = parseArgs({
  options: {
    only: { type: 'string', default: '' },
    arms: { type: 'string', default: ARMS.join() },
    json: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
  },
});

/** The interpreter of an environment with the packages of requirements.txt. */
function pythonWithPackages() {
  if (process.env.PYTHON !== undefined) return process.env.PYTHON;
  const folder = fileURLToPath(new URL('../.venv', import.meta.url));
  const interpreter = `${folder}/bin/python`;
  if (!existsSync(interpreter)) {
    const stdio = ['ignore', 'ignore', 'inherit'];
    execFileSync('python3.11', ['-m', 'venv', folder], { stdio });
    const requirements = fileURLToPath(new URL('./requirements.txt', import.meta.url));
    execFileSync(interpreter, ['-m', 'pip', 'install', '--quiet', '-r', requirements], { stdio });
  }
  return interpreter;
}

async function runArm(application, arm) {
  const engine = await citingEngine(application);
  const reports = [];
  let gateway;
  let witness;
  let ask;
  try {
    let url = engine.url;
    const isField = application.documents === 'field';
    if (arm !== 'direct' || isField) {
      const arrange = isField && arm !== 'allowed' && arm !== 'mapped' ? { policy: 'retrieval', hints: false } : {};
      gateway = await startGateway(
        {
          server: { port: 0 },
          upstream: { url },
          log: { level: 'silent' },
          arrange,
          recognise: arm === 'off' ? 'off' : 'ask',
        },
        { onRequest: (report) => report.promptTokens !== undefined && reports.push(report) },
      );
      witness = await bodyWitness(gateway.url);
      url = witness.url;
    }
    ask = await application.open(`${url}/v1`, application.isPython ? pythonWithPackages() : undefined);
    for (const asked of QUESTIONS_BEFORE) await ask(asked);
    const isAllowed = arm === 'allowed' || arm === 'mapped';
    const changed = witness === undefined || isField ? undefined : changedBytes(witness.bodies, engine.served);
    if (isAllowed && !isField) await allow(gateway.url, arm === 'mapped' ? 'mapped' : 'kept');
    for (const asked of QUESTIONS_BEHIND) await ask(asked);
    const from = engine.served.length;
    const reported = reports.length;
    let right = 0;
    let intact = 0;
    for (const asked of QUESTIONS) {
      const answer = await ask(asked);
      if (isRight(application, asked, answer)) right++;
      if (isIntact(asked, engine.served.at(-1).prompt)) intact++;
    }
    while (gateway !== undefined && reports.length < reported + engine.served.length - from) await wait(10);
    const sum = (rows, field) => rows.reduce((total, row) => total + (row[field] ?? 0), 0);
    const measured = engine.served.slice(from);
    const tokens = sum(measured, 'tokens');
    const gainTokens = sum(reports.slice(reported), 'gainTokens');
    return {
      tokens,
      cachedTokens: sum(measured, 'cached'),
      ...(gateway !== undefined && { gainTokens }),
      right,
      intact,
      ...(changed !== undefined && { changed }),
    };
  } finally {
    ask?.close?.();
    witness?.close();
    await gateway?.close();
    await engine.close();
  }
}

/** Allows the kinds that the gateway has found, once it has learned from all prompts so far. */
async function allow(url, labels) {
  const list = async () => (await (await fetch(`${url}/v1/prompts`, { headers })).json()).data;
  let kinds = [];
  for (let last = ''; last === '' || last !== JSON.stringify(kinds); ) {
    last = JSON.stringify(kinds);
    await wait(500);
    kinds = await list();
  }
  for (const { id } of kinds) {
    const body = JSON.stringify({ state: 'allowed', labels });
    const json = { ...headers, 'content-type': 'application/json' };
    const answer = await fetch(`${url}/v1/prompts/${id}`, { method: 'POST', headers: json, body });
    if (!answer.ok) throw new Error(await answer.text());
  }
}
const headers = { authorization: 'Bearer x' };

function isRight({ label, cited = (_passage, place) => `${place + 1}` }, { passages, asked }, answer) {
  const passage = passages[asked];
  const source = label === undefined ? `the passage of ${passage.topic}` : `[${cited(passage, asked)}]`;
  return answer === `It was built in ${passage.year} ${source}.`;
}

/** Whether each passage stands in a prompt as one run of its own characters, or of these in JSON. */
function isIntact({ passages }, prompt) {
  return passages.every(({ text }) => prompt.includes(text) || prompt.includes(JSON.stringify(text).slice(1, -1)));
}

/** Bytes at which what the engine got is not what its client sent, before anything is allowed. */
function changedBytes(asked, served) {
  return served.reduce((total, { body }, place) => {
    const [given, sent] = [Buffer.from(asked[place]), Buffer.from(body)];
    const shared = Math.min(given.length, sent.length);
    let differ = Math.max(given.length, sent.length) - shared;
    for (let at = 0; at < shared; at++) if (given[at] !== sent[at]) differ++;
    return total + differ;
  }, 0);
}

const figures = {};
const chosen = APPLICATIONS.filter(({ name }) => name.toLowerCase().includes(values.only.toLowerCase()));
for (const application of chosen) {
  const arms = {};
  for (const arm of values.arms.split(',')) {
    arms[arm] = await runArm(application, arm);
    const { tokens, cachedTokens, gainTokens, right, intact, changed } = arms[arm];
    const share = (count) => (count === undefined ? '' : `${((100 * count) / tokens).toFixed(1)} %`);
    process.stderr.write(
      `${application.name} | ${arm} | cached ${share(cachedTokens)} | gain ${share(gainTokens)} | ${right}/${MEASURED} right | ${intact} intact | ${changed ?? '-'} bytes changed\n`,
    );
  }
  figures[application.name] = { documents: application.documents, labels: application.label !== undefined, arms };
}
if (values.json) process.stdout.write(`${JSON.stringify(figures, undefined, 2)}\n`);
if (values.write) {
  const page = new URL('../../../docs/integrations/index.md', import.meta.url);
  const table = /\| application \|.*(?:\n\|.*)*/;
  writeFileSync(
    page,
    readFileSync(page, 'utf8').replace(table, () => tableOf(figures)),
  );
}
