import { Command } from 'commander';
import { type CommandContext, PROGRAM } from './command-context.js';
import { addArrangeCommand } from './commands/arrange.js';
import { addAskCommand } from './commands/ask.js';
import { addCheckConfigCommand } from './commands/check-config.js';
import { addCollectionsCommand } from './commands/collections.js';
import { addDemoCommand } from './commands/demo.js';
import { addDoctorCommand } from './commands/doctor.js';
import { addEngineCommand } from './commands/engine.js';
import { addExplainCommand } from './commands/explain.js';
import { addHashKeyCommand } from './commands/hash-key.js';
import { addIngestCommand } from './commands/ingest.js';
import { addLabCommand } from './commands/lab.js';
import { addPlanCommand } from './commands/plan.js';
import { addServeCommand } from './commands/serve.js';
import { addSessionsCommand } from './commands/sessions.js';
import { addTopCommand } from './commands/top.js';
import { addUpCommand } from './commands/up.js';
import { EXIT_CODES_HELP } from './exit-codes.js';
import { packageVersion } from './version.js';

/** The whole command line. Throws commander's errors instead of ending the process. */
export function createProgram(context: CommandContext): Command {
  const program = new Command(PROGRAM)
    .description('Starts every RAG prompt with tokens that the LLM engine has already prefilled.')
    .version(packageVersion())
    .showSuggestionAfterError()
    .addHelpText('after', EXIT_CODES_HELP)
    .exitOverride()
    // Errors are printed in one place, in one form (failure.ts).
    .configureOutput({ outputError: () => {} });
  addUpCommand(program, context);
  addServeCommand(program, context);
  addEngineCommand(program, context);
  addDemoCommand(program, context);
  addIngestCommand(program, context);
  addAskCommand(program, context);
  addCollectionsCommand(program, context);
  addDoctorCommand(program, context);
  addTopCommand(program, context);
  addArrangeCommand(program, context);
  addExplainCommand(program, context);
  addLabCommand(program, context);
  addPlanCommand(program, context);
  addSessionsCommand(program, context);
  addCheckConfigCommand(program, context);
  addHashKeyCommand(program, context);
  return program;
}
