#!/usr/bin/env node
// Stands in for a coding agent: sends two turns to the gateway that it was given, tells how it was started on standard
// output or in the file STAND_IN_REPORT, and ends with the exit code in its last argument; `wait` waits for a signal.
import { writeFileSync } from 'node:fs';
import { basename } from 'node:path';

const agent = basename(process.argv[1]);
const args = process.argv.slice(2);
const { env } = process;

function settings() {
  if (agent === 'claude') {
    return { base: `${env.ANTHROPIC_BASE_URL}/v1`, key: env.ANTHROPIC_AUTH_TOKEN, model: env.ANTHROPIC_MODEL };
  }
  if (agent === 'codex') {
    const given = args.filter((_, i) => args[i - 1] === '-c').join('\n');
    const [, base] = /base_url="([^"]+)"/.exec(given);
    return { base, key: env.WARMPATH_AGENT_KEY, model: /^model="(.+)"/m.exec(given)?.[1] };
  }
  const config = JSON.parse(env.OPENCODE_CONFIG_CONTENT);
  const [name, ...model] = config.model.split('/');
  const { baseURL, apiKey } = config.provider[name].options;
  return { base: baseURL, key: apiKey, model: model.join('/'), config };
}

const SESSIONS = { claude: 'x-claude-code-session-id', codex: 'session-id', opencode: 'x-session-id' };
const APIS = { claude: 'messages', codex: 'responses', opencode: 'chat/completions' };

async function ask({ base, key, model }, turns) {
  const messages = turns.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }));
  const asked = { model: model || 'its-own-model' };
  const body = agent === 'codex' ? { ...asked, input: messages } : { ...asked, messages, max_tokens: 8 };
  const named = { [SESSIONS[agent]]: `session-${process.pid}` };
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}`, ...named };
  const response = await fetch(`${base}/${APIS[agent]}`, { method: 'POST', headers, body: JSON.stringify(body) });
  await response.text();
  return response.status;
}

const found = settings();
const statuses = [await ask(found, ['one two three']), await ask(found, ['one two three', 'yes', 'four'])];
const anthropicKey = env.ANTHROPIC_API_KEY ?? null;
const models = Object.entries(env).filter(([name]) => /^(ANTHROPIC|CLAUDE).*MODEL/.test(name));
const last = args.at(-1);
if (last === 'wait') process.on('SIGTERM', () => process.exit(7));
const report = { agent, args, ...found, anthropicKey, models: Object.fromEntries(models), statuses };
if (env.STAND_IN_REPORT === undefined) process.stdout.write(`${JSON.stringify(report)}\n`);
else writeFileSync(env.STAND_IN_REPORT, JSON.stringify(report));
if (last === 'wait') {
  setInterval(() => {}, 1_000);
} else if (last === 'kill') {
  process.kill(process.pid, 'SIGKILL');
} else {
  process.exitCode = Number(last) || 0;
}
