import { createProgram } from '../../packages/cli/dist/program.js';
import { LEFT_OUT_KINDS, READ_KINDS } from '../../packages/retrieval/dist/parse/formats.js';
import { code, page, table } from './markdown.js';

/** Of every command, and explained once. */
const COMMON = new Set(['--json', '--help']);
/** Its options stand under `engine`; other commands take some of them. */
const ENGINE_GROUP = 'The embedded engine:';

/** Every command with its own help text, from the program itself. */
export async function cliPage() {
  const program = await createProgram({ argv: [] });
  return page(
    'Command line',
    '`npx warmpath <command>`. Every command has `--help`, and `--json`: standard output then has JSON and nothing else, errors too.',
    [...leavesOf(program, '').map(({ name, command }) => sectionOf(name, command)), kindsSection()],
  );
}

/** What `ingest` reads and leaves out, from the table of formats. */
function kindsSection() {
  const listed = (extensions) => extensions.join(' ');
  const sizes = [...new Set(READ_KINDS.map(({ maxBytes }) => maxBytes))];
  const read = sizes.map((size) => {
    const kinds = READ_KINDS.filter(({ maxBytes }) => maxBytes === size);
    return [listed(kinds.flatMap(({ extensions }) => extensions)), `read, up to ${size / 2 ** 20} MB`];
  });
  const rows = [
    ...read,
    ['.jsonl .ndjson', 'read: a document a line, up to 16 MB each'],
    [listed(LEFT_OUT_KINDS.flatMap(({ extensions }) => extensions.slice(0, 1))), 'and their like: left out'],
    ['others', 'read as text, or left out'],
    ['encrypted, broken, too large', 'refused'],
  ];
  const rule =
    'Rows of a CSV file with a column `text` or `content` are documents with metadata. Objects of a JSON list are, too.';
  return `## Kinds of files\n\n${table(['files', ''], rows)}\n\n${rule}`;
}

/** The commands that do something, with their full names. */
function leavesOf(command, prefix) {
  return command.commands.flatMap((child) => {
    const name = `${prefix}${child.name()}`;
    return child.commands.length > 0 ? leavesOf(child, `${name} `) : [{ name, command: child }];
  });
}

/** The help as a terminal of 100 columns shows it, without the options that stand elsewhere on the page. */
function sectionOf(name, command) {
  const elsewhere =
    name === 'engine' ? [] : command.options.filter((option) => option.helpGroupHeading === ENGINE_GROUP);
  command.configureHelp({
    helpWidth: 100,
    visibleOptions: ({ options }) =>
      options.filter((option) => !COMMON.has(option.long) && !elsewhere.includes(option)),
  });
  const [usage, , , ...rest] = command.helpInformation().trim().split('\n');
  const text = [usage, ...rest].join('\n').trim();
  const flags = elsewhere.map(({ long }) => code(long)).join(', ');
  const note = elsewhere.length === 0 ? '' : `\n\nAs [engine](#engine): ${flags}.`;
  const [first, ...letters] = command.description();
  const summary = `${first.toUpperCase()}${letters.join('')}.`;
  return `## ${name}\n\n${summary}\n\n\`\`\`text\n${text}\n\`\`\`${note}`;
}
