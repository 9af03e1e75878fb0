import { stat } from 'node:fs/promises';
import { listModels, removeModel, resolveModel } from '@warmpath/engine';
import type { Command } from 'commander';
import { addCommand, type CommandContext, examplesHelp } from '../command-context.js';
import { addModelFolderOption, announceStart, megabytes } from '../engine-settings.js';
import { EXIT_CODES_HELP } from '../exit-codes.js';
import { withInterruption } from '../interruption.js';

interface ModelsOptions {
  readonly cacheDir?: string;
}

/** Adds `warmpath models`. */
export function addModelsCommand(program: Command, context: CommandContext): void {
  const group = program
    .command('models')
    .description('list, download and remove models of the embedded engine')
    .addHelpText('after', examplesHelp('models'))
    .addHelpText('after', EXIT_CODES_HELP);
  addModelFolderOption(addCommand(group, 'list', 'list the downloaded models')).action((options: ModelsOptions) =>
    list(options, context),
  );
  addModelFolderOption(addCommand(group, 'pull', 'download a model, or resume its download'))
    .argument('<model>', 'what --model takes')
    .action((model: string, options: ModelsOptions) =>
      withInterruption((signal) => pull(model, options, { ...context, signal })),
    );
  addModelFolderOption(addCommand(group, 'remove', 'delete a downloaded model'))
    .argument('<model>', 'a name of the list')
    .action((model: string, options: ModelsOptions) =>
      withInterruption((signal) => remove(model, options, { ...context, signal })),
    );
}

type InterruptibleContext = CommandContext & { readonly signal: AbortSignal };

async function list({ cacheDir }: ModelsOptions, { terminal }: CommandContext): Promise<void> {
  const models = await listModels(cacheDir);
  terminal.data(models);
  if (models.length === 0) {
    terminal.line('No model was downloaded. `warmpath models pull hf:org/repo:Q4_K_M` downloads one.');
    return;
  }
  for (const { model, bytes, complete, path } of models) {
    terminal.line(`${model}   ${megabytes(bytes)}${complete ? '' : ', unfinished: `warmpath models pull` resumes it'}`);
    terminal.line(`  ${terminal.style.dim(path)}`);
  }
}

async function pull(
  spec: string,
  { cacheDir }: ModelsOptions,
  { terminal, signal }: InterruptibleContext,
): Promise<void> {
  // A query may hold a signature.
  const start = announceStart(terminal, `Downloading ${spec.replace(/\?.*$/s, '')} …`);
  const folder = cacheDir !== undefined && { cacheDir };
  const { path } = await resolveModel(spec, { ...folder, onProgress: start.onProgress, signal }).finally(() =>
    start.stop(),
  );
  const stored = (await listModels(cacheDir)).find((model) => model.path === path);
  const { model, bytes } = stored ?? { model: spec, bytes: (await stat(path)).size };
  terminal.data({ model, path, bytes });
  terminal.line(`${model} is here: ${path}, ${megabytes(bytes)}.`);
}

async function remove(
  spec: string,
  { cacheDir }: ModelsOptions,
  { terminal, signal }: InterruptibleContext,
): Promise<void> {
  const onWait = () => terminal.note(`${spec}: waiting for another process that downloads it`);
  const { model, path, bytes } = await removeModel(spec, { cacheDir, signal, onWait });
  terminal.data({ model, path, bytes, removed: true });
  terminal.line(`${model} removed: ${megabytes(bytes)} freed.`);
}
