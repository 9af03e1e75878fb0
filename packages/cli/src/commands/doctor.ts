import { spawnEngine } from '@warmpath/engine';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../command-context.js';
import { examine } from '../doctor/examine.js';
import { type Check, judge, type Verdict } from '../doctor/judge.js';
import { EngineClient } from '../engine-client.js';
import { addEngineOptions, engineSettings, modelProgress } from '../engine-settings.js';
import { EXIT_CODES } from '../exit-codes.js';
import { withInterruption } from '../interruption.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress } from '../options.js';
import type { Style, Terminal } from '../terminal.js';

/** Adds `warmpath doctor`. */
export function addDoctorCommand(program: Command, context: CommandContext): void {
  const command = addCommand(
    program,
    'doctor',
    'probe an engine: prefix caching, block size, cached tokens in usage, TTFT',
  );
  addEngineUrlOptions(command, 'engine to probe, any OpenAI-compatible one; an embedded one is started if left out');
  addEngineOptions(command).action(async (options: EngineUrlOptions) => {
    const healthy = await withInterruption((signal) => doctor(options, context, signal));
    if (!healthy) context.exitCode = EXIT_CODES.failure;
  });
}

async function doctor(options: EngineUrlOptions, context: CommandContext, signal: AbortSignal): Promise<boolean> {
  if (options.engine !== undefined) return diagnose(options, context, signal);
  const onProgress = modelProgress(context.terminal);
  const engine = await spawnEngine({ ...engineSettings(options), port: 0 }, { onProgress, signal });
  try {
    return await diagnose({ engine: engine.url }, context, signal);
  } finally {
    await engine.stop();
  }
}

/** Examines, prints, and says whether nothing failed. */
async function diagnose(options: EngineUrlOptions, context: CommandContext, signal: AbortSignal): Promise<boolean> {
  const address = engineAddress(options, context.environment);
  const client = new EngineClient(address);
  try {
    const facts = await examine(client, options.model, signal);
    const checks = judge(facts);
    const healthy = checks.every(({ verdict }) => verdict !== 'failed');
    context.terminal.data({ engine: address.url, model: facts.model, healthy, checks, facts });
    printChecks(context.terminal, address.url, checks);
    return healthy;
  } finally {
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
    if (advice !== undefined) terminal.line(`  ${' '.repeat(7 + 2 + width)}  → ${advice}`);
  }
}
