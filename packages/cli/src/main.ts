import { createContext } from './command-context.js';
import { EXIT_CODES } from './exit-codes.js';
import { reportFailure } from './failure.js';
import { createProgram } from './program.js';
import { Terminal } from './terminal.js';

// `warmpath … | head` ends the command as it ends any other.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT_CODES.brokenPipe);
  throw error;
});
// Known before parsing, because a command line that cannot be parsed must fail in JSON too.
const terminal = new Terminal(process, {
  json: process.argv.includes('--json'),
  environment: process.env,
});
const context = createContext(terminal);
try {
  const program = await createProgram(context);
  await program.parseAsync(process.argv);
  process.exitCode = context.exitCode;
} catch (error) {
  process.exitCode = reportFailure(error, terminal);
}
