import { spawnEngine } from '@warmpath/engine';
import { configuredDialect } from '@warmpath/gateway';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { examine, MAX_PROBES } from '../doctor/examine.js';
import { type Check, judge, type Verdict } from '../doctor/judge.js';
import { EngineClient } from '../engine-client.js';
import { addEngineOptions, announceStart, engineSettings } from '../engine-settings.js';
import { EXIT_CODES } from '../exit-codes.js';
import { withInterruption } from '../interruption.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../options.js';
import { startProgress } from '../progress.js';
import type { Style, Terminal } from '../terminal.js';

interface DoctorOptions extends EngineUrlOptions {
  readonly timeout: number;
}

/** Adds `warmpath doctor`. */
export function addDoctorCommand(program: Command, context: CommandContext): void {
  const command = addCommand(
    program,
    'doctor',
    'probe an engine: prefix caching, block size, cached tokens in usage, TTFT',
  );
  addEngineUrlOptions(command, 'engine to probe, any OpenAI-compatible one; an embedded one is started if left out');
  command.option(
    '--timeout <seconds>',
    'how long an answer may take before the engine counts as stuck',
    wholeNumber(1, 3_600),
    60,
  );
  addEngineOptions(command).action(async (options: DoctorOptions) => {
    const healthy = await withInterruption((signal) => doctor(options, context, signal));
    if (!healthy) context.exitCode = EXIT_CODES.failure;
  });
}

async function doctor(options: DoctorOptions, context: CommandContext, signal: AbortSignal): Promise<boolean> {
  if (options.engine !== undefined) return diagnose(options, context, signal);
  const start = announceStart(context.terminal);
  const settings = engineSettings(options);
  const starting = spawnEngine({ ...settings, port: 0 }, { onProgress: start.onProgress, signal });
  const engine = await starting.finally(() => start.stop());
  try {
    return await diagnose({ ...options, engine: engine.url, model: engine.model.name }, context, signal);
  } finally {
    await engine.stop();
  }
}

/** Examines, prints, and says whether nothing failed. */
async function diagnose(options: DoctorOptions, context: CommandContext, signal: AbortSignal): Promise<boolean> {
  const address = engineAddress(options, context.environment);
  const client = new EngineClient(address, { timeoutMs: options.timeout * 1_000 });
  const progress = startProgress(context.terminal, 'requests', MAX_PROBES);
  try {
    const { url } = address;
    const hooks = { signal, onRequest: () => progress.advance() };
    const examined = await examine(client, { url, model: options.model }, hooks);
    const dialect = configuredDialect({ dialect: 'auto', url });
    const facts = {
      ...examined,
      ...(dialect.name !== 'generic' && { dialect }),
    };
    progress.stop();
    const checks = judge(facts);
    const healthy = checks.every(({ verdict }) => verdict !== 'failed');
    context.terminal.data({ engine: url, model: facts.model, healthy, checks, facts });
    printChecks(context.terminal, url, checks);
    return healthy;
  } finally {
    progress.stop();
    await client.close();
  }
}

const MARKS: Readonly<Record<Verdict, (style: Style) => string>> = {
  ok: (style) => style.green('ok     '),
  warning: (style) => style.yellow('warning'),
  failed: (style) => style.red('failed '),
  unknown: (style) => style.dim('unknown'),
};

function printChecks(terminal: Terminal, url: string, checks: readonly Check[]): void {
  terminal.line(`Engine at ${url}`);
  terminal.line();
  const width = Math.max(...checks.map(({ name }) => name.length));
  for (const { name, verdict, finding, advice } of checks) {
    terminal.line(`  ${MARKS[verdict](terminal.style)}  ${name.padEnd(width)}  ${finding}`);
    if (advice !== undefined) terminal.line(`    → ${advice}`);
  }
}
