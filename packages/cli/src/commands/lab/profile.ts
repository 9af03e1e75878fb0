import { WarmpathError } from '@warmpath/core';
import { spawnEngine } from '@warmpath/engine';
import { type Command, InvalidArgumentError } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { EngineClient } from '../../engine-client.js';
import { addEngineOptions, announceStart, engineSettings } from '../../engine-settings.js';
import { writeWhole } from '../../files/write-whole.js';
import { withInterruption } from '../../interruption.js';
import { type MeasuredProfile, ProfileMeasurement, type ProfilePlan, requestsOf } from '../../lab/measure-profile.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import type { Terminal } from '../../terminal.js';

interface ProfileOptions extends EngineUrlOptions {
  readonly output: string;
  readonly cached: readonly number[];
  readonly new: readonly number[];
  readonly repeats: number;
}

/** Points on one axis, and tokens of one point. */
const MAX_POINTS = 32;
const MAX_TOKENS = 1_000_000;
const MAX_REPEATS = 100;

/** Adds `warmpath lab profile`. */
export function addProfileCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(
    lab,
    'profile',
    'measure the time to the first token of an engine over cached and new tokens',
  ).requiredOption('-o, --output <file>', 'where to write the profile that `lab run --latency` reads');
  addEngineUrlOptions(command, 'engine to measure, any OpenAI-compatible one; an embedded one is started if left out')
    .option('--cached <tokens>', 'cached tokens, separated by commas', cachedAxis, [0, 256, 512, 1_024, 2_048])
    .option('--new <tokens>', 'new tokens, separated by commas', axis, [32, 128, 512, 1_024])
    .option('--repeats <number>', 'rounds over all of them; the medians are written', wholeNumber(1, MAX_REPEATS), 3);
  addEngineOptions(command).action((options: ProfileOptions) =>
    withInterruption((signal) => profile(options, { ...context, signal })),
  );
}

type ProfileContext = CommandContext & { readonly signal: AbortSignal };

async function profile(options: ProfileOptions, context: ProfileContext): Promise<void> {
  if (options.engine !== undefined) return measure(options, context);
  const { signal } = context;
  const start = announceStart(context.terminal);
  const starting = spawnEngine({ ...engineSettings(options), port: 0 }, { onProgress: start.onProgress, signal });
  const engine = await starting.finally(() => start.stop());
  try {
    await measure({ ...options, engine: engine.url, model: engine.model.name }, context);
  } finally {
    await engine.stop();
  }
}

async function measure(options: ProfileOptions, { terminal, environment, signal }: ProfileContext): Promise<void> {
  const address = engineAddress(options, environment);
  const client = new EngineClient(address);
  try {
    const plan = await planOf(options, client, signal);
    const progress = startProgress(terminal, 'requests', requestsOf(plan));
    const measurement = new ProfileMeasurement(client, plan, () => progress.advance());
    try {
      await measurement.run(signal);
    } catch (error) {
      // The rounds that were done are kept; what happened is still an interruption.
      if (!signal.aborted) throw error;
    } finally {
      progress.stop();
    }
    const measured = measurement.profile();
    if (measured !== undefined) await keep({ engine: address.url, ...measured }, options.output, terminal);
    signal.throwIfAborted();
  } finally {
    await client.close();
  }
}

async function planOf(options: ProfileOptions, client: EngineClient, signal: AbortSignal): Promise<ProfilePlan> {
  const model = options.model ?? (await client.models(signal))[0]?.id;
  if (model === undefined) {
    throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
  }
  return { model, cachedTokens: options.cached, newTokens: options.new, repeats: options.repeats };
}

async function keep(
  measured: MeasuredProfile & { readonly engine: string },
  file: string,
  terminal: Terminal,
): Promise<void> {
  await writeWhole(file, `${JSON.stringify(measured, undefined, 2)}\n`, '--output');
  terminal.data(measured);
  const { cachedTokens, newTokens, prefillMs, repeats, reports, droppedCachedTokens } = measured;
  terminal.line(`${terminal.style.bold(measured.engine)}: ms to the first token, medians of ${repeats}`);
  const header = ['cached \\ new', ...newTokens.map((tokens) => tokens.toFixed(0))];
  const rows = prefillMs.map((row, place) => [cachedTokens[place]!.toFixed(0), ...row.map((ms) => ms.toFixed(1))]);
  terminal.table([header, ...rows]);
  if (droppedCachedTokens.length > 0) {
    const rowsText = `for ${droppedCachedTokens.join(', ')} tokens it cached no more than for fewer`;
    terminal.note(`left out: ${rowsText}; \`warmpath doctor\` says whether it caches at all`);
  }
  if (!reports.promptTokens) terminal.note('the engine reports no usage: a word counts as a token');
  else if (!reports.cachedTokens) terminal.note('the engine reports no cached tokens: rows are those aimed at');
  terminal.line(`written to ${file}`);
}

function axis(text: string): readonly number[] {
  const values = text.split(',').map(wholeNumber(0, MAX_TOKENS));
  const isAscending = values.every((value, place) => place === 0 || value > values[place - 1]!);
  if (isAscending && values.length <= MAX_POINTS && values[0]! > 0) return values;
  throw new InvalidArgumentError(`At most ${MAX_POINTS} whole numbers above 0, each larger than the one before.`);
}

/** Without cached tokens there must be a row: everything is measured against it. */
function cachedAxis(text: string): readonly number[] {
  if (text === '0') return [0];
  const rest = /^0,(.*)$/.exec(text)?.[1];
  if (rest !== undefined) return [0, ...axis(rest)];
  throw new InvalidArgumentError('Whole numbers were expected, 0 first.');
}
