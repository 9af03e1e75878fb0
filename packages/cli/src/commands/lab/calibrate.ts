import { randomBytes } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { configuredDialect, type Dialect, dialectOfOwner } from '@warmpath/gateway';
import { CACHE_SPECIFICATIONS, type LabPolicyName, readCache } from '@warmpath/lab';
import type { Command } from 'commander';
import { addCommand, type CommandContext } from '../../command-context.js';
import { EngineClient } from '../../engine-client.js';
import { withInterruption } from '../../interruption.js';
import {
  AGREES_WITHIN,
  type CalibratedShare,
  type Calibration,
  type CalibrationSettings,
  calibrateEngine,
  calibrateModel,
  calibrationOf,
  calibrationRequests,
  type EngineTokens,
  modelOf,
  modelWithRoom,
  roomOf,
  templateTokensOf,
} from '../../lab/calibration.js';
import { readQuestionSource } from '../../lab/evaluation/question-source.js';
import { policiesOption } from '../../lab/options.js';
import { addEngineUrlOptions, type EngineUrlOptions, engineAddress, wholeNumber } from '../../options.js';
import { startProgress } from '../../progress.js';
import { percent, type Terminal } from '../../terminal.js';

interface CalibrateOptions extends EngineUrlOptions {
  readonly data: string;
  readonly cache?: string;
  readonly policies: readonly LabPolicyName[];
  readonly topK?: number;
  readonly limit?: number;
}

const MARK_BYTES = 6;
/** Nothing is drawn here: the order of data sets without conversations of their own is that of the file. */
const SEED = 42;

/** Adds `warmpath lab calibrate`. */
export function addCalibrateCommand(lab: Command, context: CommandContext): void {
  const command = addCommand(
    lab,
    'calibrate',
    "send the same requests to an engine and to the lab's model of its cache",
  )
    .requiredOption('--data <path>', 'questions with answers: a BEIR folder, or a file of MTRAG tasks')
    .option('--cache <cache>', `the model, one of ${CACHE_SPECIFICATIONS} (default: by the kind of engine)`)
    .addOption(policiesOption('retrieval,exact,foresight'))
    .option('--top-k <number>', 'passages a question (5)', wholeNumber(1, 1_000))
    .option('--limit <number>', 'number of questions, from the first (default: all)', wholeNumber(1));
  addEngineUrlOptions(command, 'engine to play on, any OpenAI-compatible one that reports cached tokens')
    .option('--model <name>', 'one of its models (default: its first)')
    .action((options: CalibrateOptions) => withInterruption((signal) => calibrate(options, { ...context, signal })));
}

/** One policy as the engine played it. */
interface PlayedPolicy {
  readonly policy: LabPolicyName;
  readonly engine: CalibratedShare;
  readonly tokens: EngineTokens;
  readonly mark: string;
}

async function calibrate(
  options: CalibrateOptions,
  { terminal, environment, signal }: CommandContext & { readonly signal: AbortSignal },
): Promise<void> {
  if (options.engine === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', { path: '--engine', detail: 'the URL of an engine was expected' });
  }
  const address = engineAddress(options, environment);
  const given = options.cache === undefined ? undefined : readCache(options.cache);
  const source = await readQuestionSource(options.data, { ...options, seed: SEED });
  const requests = calibrationRequests(source.questions);
  const client = new EngineClient(address);
  const progress = startProgress(terminal, 'requests', requests.length * options.policies.length);
  try {
    const models = await client.models(signal);
    const model = options.model ?? models[0]?.id;
    if (model === undefined) {
      throw new WarmpathError('WARMPATH_MODEL_NOT_FOUND', { path: '--model', detail: 'the engine names no model' });
    }
    const dialect = dialectOfOwner(models[0]?.owned_by) ?? configuredDialect({ dialect: 'auto', url: address.url });
    const first = options.cache ?? (await modelOf(dialect, client, signal));
    const createFirst = given ?? readCache(first);
    const template = await templateTokensOf(client, model, signal);
    const onEngine: PlayedPolicy[] = [];
    for (const policy of options.policies) {
      const mark = randomBytes(MARK_BYTES).toString('hex');
      const settings = { model, createCache: createFirst, systemPrompt: source.systemPrompt, mark };
      const hooks = { template, signal, onRequest: () => progress.advance() };
      const played = await calibrateEngine(requests, policy, client, { ...settings, ...hooks });
      if (played === undefined) throw withoutCounts(dialect);
      onEngine.push({ policy, mark, ...played });
    }
    progress.stop();
    const played = (createCache: CalibrationSettings['createCache']) =>
      onEngine.map(({ policy, engine, tokens, mark }): Calibration => {
        const settings = { model, createCache, systemPrompt: source.systemPrompt, mark, tokens };
        return calibrationOf(policy, engine, calibrateModel(requests, policy, settings));
      });
    let [cache, results] = [first, played(createFirst)];
    const room = options.cache === undefined && dialect.name === 'embedded' ? await roomOf(client, signal) : undefined;
    if (room !== undefined) {
      cache = modelWithRoom(room);
      results = played(readCache(cache));
    }
    const misses = results.filter(({ agrees }) => !agrees).map(({ policy }) => policy);
    const bar = { agreesWithin: AGREES_WITHIN, agrees: misses.length === 0, misses };
    const engine = { engine: address.url, model, dialect: dialect.name, ...(room !== undefined && { room }) };
    terminal.data({ ...engine, cache, requests: requests.length, ...bar, results });
    print(results, { terminal, title: `${address.url} beside ${cache}: ${requests.length} requests` });
  } finally {
    progress.stop();
    await client.close();
  }
}

function withoutCounts({ advice }: Dialect): WarmpathError {
  const what = advice.report === undefined ? '' : `; ${advice.report}`;
  return new WarmpathError('WARMPATH_USAGE', {
    path: '--engine',
    detail: `the engine reports no cached tokens${what}`,
  });
}

function print(
  results: readonly Calibration[],
  { terminal, title }: { readonly terminal: Terminal; readonly title: string },
): void {
  const first = results[0]!;
  terminal.line(terminal.style.bold(title));
  const within = `within ${percent(AGREES_WITHIN)}`;
  const header = [
    'policy',
    'cached, engine',
    'model',
    'apart',
    within,
    'uncached, engine',
    'model',
    'ratio, engine',
    'model',
  ];
  const rows = results.map(({ policy, engine, model, agrees }) => [
    policy,
    percent(engine.cachedShare),
    percent(model.cachedShare),
    percent(Math.abs(engine.cachedShare - model.cachedShare)),
    agrees ? 'yes' : 'NO',
    engine.uncachedTokens.toFixed(0),
    model.uncachedTokens.toFixed(0),
    (engine.uncachedTokens / first.engine.uncachedTokens).toFixed(3),
    (model.uncachedTokens / first.model.uncachedTokens).toFixed(3),
  ]);
  terminal.table([header, ...rows]);
  terminal.line();
  const apart = results.filter(({ agrees }) => !agrees);
  if (apart.length === 0) terminal.line(`The model agrees with the engine within ${percent(AGREES_WITHIN)}.`);
  else
    terminal.line(
      `The model is further than ${percent(AGREES_WITHIN)} apart for ${apart.map(({ policy }) => policy).join(', ')}.`,
    );
}
