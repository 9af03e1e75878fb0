import { WarmpathError } from '@warmpath/core';
import { type EngineProcess, modelLines } from '@warmpath/engine';
import type { RunningGateway } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext, programName } from '../command-context.js';
import { withEmbeddedGateway } from '../embedded-gateway.js';
import { addEngineOptions } from '../engine-settings.js';
import { addGatewayOptions, type GatewayOptions, gatewayParts } from '../gateway-settings.js';
import { interrupted, withInterruption } from '../interruption.js';

/** Adds `warmpath up`. */
export function addUpCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'up', 'start the embedded engine and the gateway in front of it');
  addEngineOptions(addGatewayOptions(command)).action((options: GatewayOptions) =>
    withInterruption((signal) => up(options, context, signal)),
  );
}

async function up(options: GatewayOptions, context: CommandContext, signal: AbortSignal): Promise<void> {
  const parts = gatewayParts(context, options);
  await withEmbeddedGateway(options, context, { parts, signal }, async ({ gateway, engine }) => {
    announce(context, gateway, engine);
    await Promise.race([interrupted(signal), givenUp(engine)]);
    context.terminal.note('stopping …');
  });
}

/** Rejects when the engine cannot be started again. */
async function givenUp(engine: EngineProcess): Promise<never> {
  const { message: detail, cause } = await engine.failed;
  throw new WarmpathError('WARMPATH_ENGINE_EXITED', { detail, cause });
}

/** Two invented facts, so that a right answer can only come from the documents. */
const EXAMPLE = {
  messages: [{ role: 'user', content: 'What is the weight of Velka?' }],
  documents: [
    { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
    { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
  ],
};

/** For a model that cannot chat: a text to go on with. For an encoder: a text to embed. */
const TEXT_EXAMPLE = { prompt: 'The weight of Velka is 42 kg. The weight of Orsin is', max_tokens: 16 };
const EMBEDDING_EXAMPLE = { input: 'The weight of Velka is 42 kg.' };

/** A first request for a model: what it does, its path and its body. */
function firstRequest({ template }: EngineProcess['model']): readonly [does: string, path: string, body: object] {
  if (template === undefined) return ['Make an embedding of a text:', 'embeddings', EMBEDDING_EXAMPLE];
  return template.problem === undefined
    ? ['Ask a question over two documents:', 'chat/completions', EXAMPLE]
    : ['Let it go on with a text:', 'completions', TEXT_EXAMPLE];
}

function announce({ terminal, environment }: CommandContext, gateway: RunningGateway, engine: EngineProcess): void {
  terminal.serves();
  const { name, notice, reuse } = engine.model;
  const metrics = `${gateway.url}/metrics`;
  terminal.data({ url: gateway.url, engine: engine.url, enginePid: engine.pid, model: name, metrics });
  const { bold, dim, cyan } = terminal.style;
  const program = programName(environment);
  terminal.line(bold('Warmpath is ready.'));
  terminal.line();
  terminal.line(`  gateway   ${cyan(gateway.url)}  ${dim(`OpenAI API; base URL for clients: ${gateway.url}/v1`)}`);
  terminal.line(`  page      ${cyan(`${gateway.url}/ui`)}  ${dim('what Warmpath saves, and why not more')}`);
  terminal.line(`  metrics   ${metrics}`);
  terminal.line(`  engine    ${engine.url}`);
  for (const [label, text] of modelLines(engine.model)) terminal.line(`  ${label.padEnd(8)}  ${text}`);
  if (notice !== undefined) terminal.line(`  note      ${notice}`);
  terminal.line();
  const [does, path, body] = firstRequest(engine.model);
  terminal.line(`  ${does}`);
  terminal.line();
  terminal.line(`curl -s ${gateway.url}/v1/${path} -H 'content-type: application/json' -d '${JSON.stringify(body)}'`);
  terminal.line();
  if (body === EXAMPLE && reuse !== 'none') {
    terminal.line(
      dim('  Ask again with the documents swapped: usage.prompt_tokens_details.cached_tokens shows what was reused.'),
    );
  }
  terminal.line(dim(`  Or ask documents of your own: \`${program} ingest docs\`, then \`${program} ask "…"\`.`));
  terminal.line(dim(`  \`${program} demo\` compares both orders on real documents.`));
  terminal.line(dim('  Ctrl-C stops both.'));
  terminal.line();
}
