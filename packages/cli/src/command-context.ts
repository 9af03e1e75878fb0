import type { Command } from 'commander';
import { EXIT_CODES, EXIT_CODES_HELP } from './exit-codes.js';
import type { Terminal } from './terminal.js';
import { CODING_AGENTS } from './wrap/coding-agents.js';

/** Command lines that work as they stand, under the help of each command. A test runs what needs no other program. */
export const HELP_EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  up: ['warmpath up', 'warmpath up --model hf:org/repo/file.gguf --port 8080'],
  serve: [
    'warmpath serve --engine http://127.0.0.1:8000',
    'warmpath serve --engine https://engine.example --key-env ENGINE_KEY',
    'warmpath serve --config warmpath.yaml',
  ],
  engine: ['warmpath engine --port 8081', 'warmpath engine --model path/to/model.gguf --threads 4'],
  wrap: [
    'warmpath wrap --engine http://127.0.0.1:8000 claude',
    'warmpath wrap --engine http://127.0.0.1:8000 --model qwen3-coder codex exec "Fix the test."',
  ],
  models: ['warmpath models list', 'warmpath models pull hf:org/repo:Q4_K_M'],
  'models list': ['warmpath models list --json'],
  'models pull': ['warmpath models pull hf:org/repo:Q4_K_M', 'warmpath models pull https://host/file.gguf'],
  'models remove': ['warmpath models remove hf:org/repo/file.gguf'],
  demo: ['warmpath demo', 'warmpath demo --engine http://127.0.0.1:8000 --questions 20'],
  ingest: [
    'warmpath ingest docs',
    'warmpath ingest handbook.pdf notes --collection handbook',
    'warmpath ingest docs --config gateway.yaml',
  ],
  ask: ['warmpath ask "How do I put it before vLLM?"', 'warmpath ask "Who may sign?" --collection handbook -k 10'],
  collections: ['warmpath collections list'],
  'collections list': ['warmpath collections list --json'],
  'collections export': ['warmpath collections export handbook handbook.jsonl'],
  'collections import': ['warmpath collections import handbook handbook.jsonl'],
  'collections remove': ['warmpath collections remove handbook notes/old.md'],
  'collections delete': ['warmpath collections delete handbook'],
  doctor: ['warmpath doctor', 'warmpath doctor --engine http://127.0.0.1:8000 --key-env ENGINE_KEY'],
  arrange: [
    'echo \'{"documents": [{"id": "a", "content": "A."}, {"id": "b", "content": "B."}], "history": [["b"]]}\' | warmpath arrange',
  ],
  explain: [
    'warmpath explain request.json',
    'warmpath explain request.json --after earlier.json --config warmpath.yaml',
  ],
  lab: ['warmpath lab run headline', 'warmpath lab replay requests.jsonl', 'warmpath lab eval --data almanac'],
  'lab run': [
    'warmpath lab run headline --policies retrieval,exact,foresight --seeds 1..10',
    'warmpath lab run sessions --load 1.2 --replicas 2 --seeds 1..3 --report sessions.html',
  ],
  'lab replay': ['warmpath lab replay requests.jsonl --caches 4096,radix:65536'],
  'lab profile': ['warmpath lab profile --engine http://127.0.0.1:8000 --output profile.json'],
  'lab eval': [
    'warmpath lab eval --data almanac',
    'warmpath lab eval --engine http://127.0.0.1:8000 --data path/to/beir --limit 200',
  ],
  'lab calibrate': ['warmpath lab calibrate --engine http://127.0.0.1:8080 --data path/to/beir --limit 200'],
  prompts: ['warmpath prompts', 'warmpath prompts allow 3f2a'],
  'prompts list': ['warmpath prompts list --json'],
  'prompts show': ['warmpath prompts show 3f2a'],
  'prompts allow': ['warmpath prompts allow 3f2a', 'warmpath prompts allow 3f2a --labels mapped'],
  'prompts refuse': ['warmpath prompts refuse 3f2a'],
  'prompts forget': ['warmpath prompts forget 3f2a'],
  plan: [
    'echo \'{"documents": ["a", "b"]}\' | warmpath plan -',
    'warmpath plan requests.jsonl --output plan.jsonl --capacity 65536',
  ],
  sessions: ['warmpath sessions export sessions.jsonl --config warmpath.yaml'],
  'sessions export': ['warmpath sessions export sessions.jsonl --config warmpath.yaml'],
  'sessions import': ['warmpath sessions import sessions.jsonl --socket /run/warmpath.sock'],
  'sessions forget': ['warmpath sessions forget --session chat-17 --tenant acme --socket /run/warmpath.sock'],
  watch: ['warmpath watch', 'warmpath watch --once --gateway http://127.0.0.1:8080'],
  'check-config': ['warmpath check-config warmpath.yaml', 'warmpath check-config warmpath.yaml --connect'],
};

/** The examples of a command as they stand in its help. Throws for a command that has none. */
export function examplesHelp(command: string): string {
  return `\nExamples:\n${HELP_EXAMPLES[command]!.map((line) => `  ${line}`).join('\n')}`;
}

/** What every command works with. */
export interface CommandContext {
  readonly terminal: Terminal;
  readonly environment: NodeJS.ProcessEnv;
  readonly stdin: NodeJS.ReadStream;
  /** What stands behind the program's name on the command line. */
  readonly argv: readonly string[];
  /** What the process will answer to the shell unless an error decides otherwise. */
  exitCode: number;
}

/** Whether a command line asks for JSON. What stands behind the name of a wrapped agent is the agent's. */
export function asksForJson(argv: readonly string[]): boolean {
  const agentAt = argv[0] === 'wrap' ? argv.findIndex((arg) => Object.hasOwn(CODING_AGENTS, arg)) : -1;
  return (agentAt < 0 ? argv : argv.slice(0, agentAt)).includes('--json');
}

/** The name of the whole program. */
export const PROGRAM = 'warmpath';

/** How its user runs it: started by npm, as in a checkout, the command is not on the path. */
export function programName(environment: NodeJS.ProcessEnv): string {
  return environment['npm_execpath'] === undefined ? PROGRAM : `npx ${PROGRAM}`;
}

/** Adds a command with what all commands have: `--json`, and examples and the exit codes in its help. */
export function addCommand(
  program: Command,
  name: string,
  description: string,
  options: { readonly isDefault?: boolean } = {},
): Command {
  const group = program.name() === PROGRAM ? '' : `${program.name()} `;
  return program
    .command(name, options)
    .description(description)
    .option('--json', 'print JSON on standard output, errors too')
    .addHelpText('after', examplesHelp(`${group}${name}`))
    .addHelpText('after', EXIT_CODES_HELP);
}

/** Adds a command, or several under one name. */
type AddCommand = (program: Command, context: CommandContext) => void | Promise<void>;

/**
 * Loads and adds the command that the command line names under `program`; all of them where it names none, for the help
 * and for suggestions. Loading every command would take most of the time that a short one needs.
 */
export async function addCommands(
  program: Command,
  context: CommandContext,
  commands: Readonly<Record<string, () => Promise<AddCommand>>>,
): Promise<void> {
  const named = context.argv[program.name() === PROGRAM ? 0 : 1];
  const loads = named !== undefined && Object.hasOwn(commands, named) ? [commands[named]!] : Object.values(commands);
  for (const load of loads) {
    const add = await load();
    await add(program, context);
  }
}

/** A fresh context. */
export function createContext(terminal: Terminal): CommandContext {
  return {
    terminal,
    environment: process.env,
    stdin: process.stdin,
    argv: process.argv.slice(2),
    exitCode: EXIT_CODES.ok,
  };
}
