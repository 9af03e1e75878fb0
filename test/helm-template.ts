import { createHash } from 'node:crypto';
import { stringify } from 'yaml';

/**
 * Renders the part of Helm's templates that our chart uses, and refuses everything else: a path below `.Values` or
 * `.Release`, `toYaml <path>` with `| nindent <number>` or `| sha256sum`, `if <path>` or `if gt (int <path>) <number>`
 * with `else` and `end`, and `{{-`.
 */
export function renderTemplate(template: string, context: object): string {
  const open: boolean[] = [];
  let text = '';
  let end = 0;
  for (const match of template.matchAll(/(\s*)\{\{(-?) (.*?) \}\}/g)) {
    const [whole, space = '', trim, action = ''] = match;
    const isShown = open.every(Boolean);
    if (isShown) text += template.slice(end, match.index) + (trim === '-' ? '' : space);
    end = match.index + whole.length;
    const condition = /^if (\S+|gt \(int \S+\) \d+)$/.exec(action);
    if (condition) open.push(holds(condition[1]!, context));
    else if (action === 'else') open.push(!open.pop());
    else if (action === 'end') open.pop();
    else if (isShown) text += printed(action, context);
  }
  if (open.length > 0) throw new Error('an if has no end');
  return text + template.slice(end);
}

function printed(action: string, context: object): string {
  const [, path, count] = /^toYaml (\S+) \| nindent (\d+)$/.exec(action) ?? [];
  if (path !== undefined) {
    const lines = stringify(valueAt(context, path)).trimEnd().split('\n');
    return lines.map((line) => `\n${' '.repeat(Number(count))}${line}`).join('');
  }
  const [, hashed] = /^toYaml (\S+) \| sha256sum$/.exec(action) ?? [];
  if (hashed !== undefined)
    return createHash('sha256')
      .update(stringify(valueAt(context, hashed)))
      .digest('hex');
  if (/^\.[\w.]+$/.test(action)) return String(valueAt(context, action));
  throw new Error(`not in the part of Helm's templates that is tested: ${action}`);
}

function holds(condition: string, context: object): boolean {
  const [, path, number] = /^gt \(int (\S+)\) (\d+)$/.exec(condition) ?? [];
  return path === undefined ? isTrue(valueAt(context, condition)) : Number(valueAt(context, path)) > Number(number);
}

/** A value that is not there is a mistake in the chart, unlike in Helm. */
function valueAt(context: object, path: string): unknown {
  return path
    .slice(1)
    .split('.')
    .reduce((value: unknown, key) => {
      if (typeof value !== 'object' || value === null || !(key in value)) throw new Error(`there is no ${path}`);
      return (value as Record<string, unknown>)[key];
    }, context);
}

/** As Helm counts: nothing, empty texts, lists and maps are false. */
function isTrue(value: unknown): boolean {
  return typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : Boolean(value);
}
