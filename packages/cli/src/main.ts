import { format } from 'node:util';
import { asksForJson, createContext } from './command-context.js';
import { EXIT_CODES } from './exit-codes.js';
import { reportFailure } from './failure.js';
import { createProgram } from './program.js';
import { Terminal } from './terminal.js';

// Known before parsing, because a command line that cannot be parsed must fail in JSON too.
const terminal = new Terminal(process, {
  json: asksForJson(process.argv.slice(2)),
  environment: process.env,
});
// Dependencies and Node itself write through these.
for (const name of ['debug', 'error', 'info', 'log', 'warn'] as const) {
  console[name] = (...values: unknown[]) => terminal.note(format(...values));
}
process.removeAllListeners('warning').on('warning', ({ name, message }) => terminal.note(`${name}: ${message}`));
process.on('uncaughtException', (error) => process.exit(reportFailure(error, terminal)));
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (terminal.isServer) return;
  // `warmpath … | head` ends the command as it ends any other.
  if (error.code === 'EPIPE') process.exit(EXIT_CODES.brokenPipe);
  terminal.note(`error: standard output cannot be written: ${error.message}`);
  process.exit(EXIT_CODES.failure);
});
// There is no other place to say it.
process.stderr.on('error', () => {});
const context = createContext(terminal);
try {
  const program = await createProgram(context);
  await program.parseAsync(process.argv);
  process.exitCode = context.exitCode;
} catch (error) {
  process.exitCode = reportFailure(error, terminal);
}
