#!/usr/bin/env node
import { createContext } from './command-context.js';
import { reportFailure } from './failure.js';
import { createProgram } from './program.js';
import { Terminal } from './terminal.js';

// Known before parsing, because a command line that cannot be parsed must fail in JSON too.
const terminal = new Terminal(process, { json: process.argv.includes('--json') });
const context = createContext(terminal);
try {
  await createProgram(context).parseAsync(process.argv);
  process.exitCode = context.exitCode;
} catch (error) {
  process.exitCode = reportFailure(error, terminal);
}
