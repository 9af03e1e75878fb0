import type { WarmpathError } from '@warmpath/core';
import { ERROR_TABLE, printableJson, printableLine } from '@warmpath/core/internal';
import { toChildError } from './child-messages.js';
import type { EngineOptions } from './options.js';
import type { EngineHooks, ServedModel } from './server.js';
import { type SupervisedEngine, startSupervisedEngine } from './supervisor/supervised-engine.js';

/** Where the command writes; injected for tests. */
interface CommandOutput {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
}

/** The hooks of a start, whose signal also ends the running engine, and how the command speaks. */
export interface EngineCommandHooks extends EngineHooks {
  readonly output?: CommandOutput;
  /** Where it says that the native part crashed and was started again; stderr by default. */
  readonly errors?: Pick<CommandOutput, 'write'>;
  /** One line of JSON instead of lines for people; by default what is not a terminal gets JSON. */
  readonly json?: boolean;
}

/**
 * Runs the engine, supervised, until SIGINT, SIGTERM or the signal of the hooks: the command behind
 * `warmpath engine` and `warmpath-engine`. Says where it listens: in lines for people on a terminal, else as one line
 * of JSON.
 *
 * @throws Everything that `startSupervisedEngine` throws; WARMPATH_ENGINE_FAILED when the engine was given up while it
 *   served.
 */
export async function runEngineCommand(options: EngineOptions, hooks: EngineCommandHooks = {}): Promise<void> {
  const output = hooks.output ?? process.stdout;
  const errors = hooks.errors ?? process.stderr;
  const json = hooks.json ?? output.isTTY !== true;
  const server = await startSupervisedEngine(options, {
    onCrash: (error) => errors.write(crashText(error, json)),
    ...hooks,
  });
  const announce = (): unknown => output.write(json ? jsonLine(server) : lines(server));
  await serveUntil(server, announce, ['SIGINT', 'SIGTERM'], hooks.signal);
}

/**
 * Says that the server listens and serves until the first of these process signals or the abort signal, then closes the
 * server. An engine that fails for good ends too, so that whoever supervises the process can start another.
 *
 * @param announce Called once the signals are caught: whoever hears it may ask the engine to stop at once.
 * @throws WARMPATH_ENGINE_FAILED when it failed.
 */
export async function serveUntil(
  server: Pick<SupervisedEngine, 'failed' | 'close'>,
  announce: () => unknown,
  names: readonly NodeJS.Signals[],
  signal?: AbortSignal,
): Promise<void> {
  const stopped = stopSignal(names, signal);
  announce();
  const failure = await Promise.race([stopped, server.failed]);
  await server.close();
  if (failure !== undefined) {
    throw failure;
  }
}

/**
 * Settles at the first of these process signals, or when the abort signal is raised. Only the first one is caught: a
 * second Ctrl+C ends the process at once.
 */
function stopSignal(names: readonly NodeJS.Signals[], signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const name of names) {
        process.off(name, done);
      }
      signal?.removeEventListener('abort', done);
      resolve();
    };
    for (const name of names) {
      process.once(name, done);
    }
    signal?.addEventListener('abort', done, { once: true });
    if (signal?.aborted === true) {
      done();
    }
  });
}

function jsonLine(server: SupervisedEngine): string {
  return jsonText({ type: 'listening', url: server.url, model: server.model, cells: server.cells });
}

function lines(server: SupervisedEngine): string {
  const { model } = server;
  const example =
    model.template.problem === undefined
      ? `/v1/chat/completions -d '{"messages":[{"role":"user","content":"Hello"}]}'`
      : `/v1/completions -d '{"prompt":"Hello","max_tokens":16}'`;
  return [
    `Warmpath engine on ${server.url}`,
    ...modelLines(model).map(([label, text]) => `  ${label.padEnd(8)} ${text}`),
    `  cells    ${server.cells} in all`,
    ...(model.notice === undefined ? [] : [`  note     ${model.notice}`]),
    `  try      curl ${server.url}${example}`,
    `  numbers  ${server.url}/metrics`,
  ]
    .map((line) => `${printableLine(line)}\n`)
    .join('');
}

const REUSE: Readonly<Record<ServedModel['reuse'], string>> = {
  prefix: 'every prefix that prompts share, to the token',
  checkpoint: 'from checkpoints at the ends of documents, messages and prompts',
  none: 'none: every prompt is computed whole',
};
const TEMPLATES: Readonly<Record<ServedModel['template']['source'], string>> = {
  model: "the model's own",
  options: 'as the options say',
  chatml: 'ChatML, as the file has none',
};

/** What a user should know of a model before the first request: labels of at most 8 letters, each with one line. */
export function modelLines(model: ServedModel): readonly (readonly [label: string, text: string])[] {
  const { name, architecture, parameters, template, contextTokens, reuse } = model;
  return [
    ['model', `${name} (${architecture}, ${parameters.toLocaleString('en')} parameters)`],
    ['cpu', cpuText(model)],
    ['context', `${contextTokens.toLocaleString('en')} tokens a request`],
    ['reuse', REUSE[reuse]],
    ['template', template.problem ?? TEMPLATES[template.source]],
    ['tools', `described to the model by ${template.describesTools ? 'its template' : 'a system message'}`],
  ];
}

function jsonText(value: unknown): string {
  return `${printableJson(JSON.stringify(value))}\n`;
}

/** Which CPU code llama.cpp computes a model with, and why. */
export function cpuText({ cpuVariant: { name, reason } }: Pick<ServedModel, 'cpuVariant'>): string {
  return `${name} (${reason})`;
}

function crashText(error: WarmpathError, json: boolean): string {
  return json ? jsonText({ type: 'crashed', error: toChildError(error) }) : `${printableLine(error.message)}\n`;
}

/** What went wrong and what to do about it, in two lines for people or as one line of JSON. */
export function failureText(error: unknown, json: boolean): string {
  const failure = toChildError(error);
  const { remedy } = ERROR_TABLE[failure.code];
  if (json) {
    return jsonText({ type: 'failed', error: { ...failure, remedy } });
  }
  const place = failure.path === undefined ? '' : `${failure.path}: `;
  return `${printableLine(`${failure.code}: ${place}${failure.detail}`)}\n${remedy}\n`;
}
