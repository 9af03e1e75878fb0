import { createProgram } from '../../packages/cli/dist/program.js';
import { code, page, table } from './markdown.js';

/** Every command with its own help text, from the program itself. */
export async function cliPage() {
  const program = await createProgram({ argv: [] });
  return page(
    'Command line',
    '`npx warmpath <command>`. Every command has `--json`: standard output then has JSON and nothing else, errors too.',
    [
      table(
        ['command', 'what it does'],
        leavesOf(program, '').map(({ name, command }) => [code(`warmpath ${name}`), command.description()]),
      ),
      ...leavesOf(program, '').map(({ name, command }) => `## ${name}\n\n\`\`\`text\n${helpOf(command)}\n\`\`\``),
    ],
  );
}

/** The commands that do something, with their full names. */
function leavesOf(command, prefix) {
  return command.commands.flatMap((child) => {
    const name = `${prefix}${child.name()}`;
    return child.commands.length > 0 ? leavesOf(child, `${name} `) : [{ name, command: child }];
  });
}

/** The help as a terminal of 100 columns shows it, whatever terminal this runs in. */
function helpOf(command) {
  command.configureHelp({ helpWidth: 100 });
  return command.helpInformation().trim();
}
