import { createProgram } from '../../packages/cli/dist/program.js';
import { code, page } from './markdown.js';

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
    leavesOf(program, '').map(({ name, command }) => sectionOf(name, command)),
  );
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
