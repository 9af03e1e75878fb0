import { Command } from 'commander';
import { addCommands, type CommandContext, PROGRAM } from './command-context.js';
import { EXIT_CODES_HELP } from './exit-codes.js';
import { packageVersion } from './version.js';

/** The whole command line. Only the command that `context.argv` names is loaded; without one, all of them. */
export async function createProgram(context: CommandContext): Promise<Command> {
  const program = new Command(PROGRAM)
    .description('Starts every RAG prompt with tokens that the LLM engine has already prefilled.')
    .version(packageVersion())
    .showSuggestionAfterError()
    .addHelpText('after', EXIT_CODES_HELP)
    .exitOverride()
    // Errors are printed in one place, in one form (failure.ts).
    .configureOutput({
      outputError: () => {},
      writeOut: (text) => context.terminal.help(text),
      writeErr: (text) => context.terminal.help(text, true),
    });
  await addCommands(program, context, {
    up: async () => (await import('./commands/up.js')).addUpCommand,
    serve: async () => (await import('./commands/serve.js')).addServeCommand,
    engine: async () => (await import('./commands/engine.js')).addEngineCommand,
    wrap: async () => (await import('./commands/wrap.js')).addWrapCommand,
    models: async () => (await import('./commands/models.js')).addModelsCommand,
    demo: async () => (await import('./commands/demo.js')).addDemoCommand,
    ingest: async () => (await import('./commands/ingest.js')).addIngestCommand,
    ask: async () => (await import('./commands/ask.js')).addAskCommand,
    collections: async () => (await import('./commands/collections.js')).addCollectionsCommand,
    doctor: async () => (await import('./commands/doctor.js')).addDoctorCommand,
    arrange: async () => (await import('./commands/arrange.js')).addArrangeCommand,
    explain: async () => (await import('./commands/explain.js')).addExplainCommand,
    lab: async () => (await import('./commands/lab.js')).addLabCommand,
    prompts: async () => (await import('./commands/prompts.js')).addPromptsCommand,
    plan: async () => (await import('./commands/plan.js')).addPlanCommand,
    sessions: async () => (await import('./commands/sessions.js')).addSessionsCommand,
    watch: async () => (await import('./commands/watch.js')).addWatchCommand,
    'check-config': async () => (await import('./commands/check-config.js')).addCheckConfigCommand,
  });
  return program;
}
