// The public names of a package, with their declarations and doc comments, from the declarations that the compiler
// wrote. They are plain enough to be cut by their brackets, so no second compiler is needed.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { page } from './markdown.js';

/** Lines of a constant that are shown; a longer one is a table with a page of its own. */
const CONSTANT_LINES = 40;

const EXPORT = /export (type )?\{([^}]*)\} from '(.*?)\.js';/g;

/** The reference page of `@warmpath/<name>`. */
export function apiPage(name) {
  const dist = join(import.meta.dirname, '../../packages', name, 'dist');
  const index = readFileSync(join(dist, 'index.d.ts'), 'utf8');
  const symbols = [...index.matchAll(EXPORT)].flatMap(([, , list, path]) => {
    const declarations = readFileSync(join(dist, `${path}.d.ts`), 'utf8');
    return list
      .split(',')
      .map((entry) => entry.trim().replace(/^type /, ''))
      .filter((entry) => entry !== '')
      .map((entry) => ({ name: entry, ...declarationOf(entry, declarations) }));
  });
  symbols.sort((a, b) => (a.name.toLowerCase() < b.name.toLowerCase() ? -1 : 1));
  return page(
    `@warmpath/${name}`,
    'Every public name of the package, from its doc comments. All fields are read only.',
    symbols.map(({ name: symbol, comment, text }) => {
      return [`## ${symbol}`, inline(comment), `\`\`\`ts\n${text}\n\`\`\``].filter((part) => part !== '').join('\n\n');
    }),
  );
}

/** Where a name is declared: the doc comment above it, and its text. */
function declarationOf(name, text) {
  const pattern = new RegExp(
    `^export (?:declare )?(?:abstract )?(class|interface|type|function|const) ${name}\\b`,
    'gm',
  );
  const [first, ...overloads] = text.matchAll(pattern);
  if (first === undefined) throw new Error(`${name} is not declared where it is exported from`);
  const declarations = [first, ...overloads].map((match) => {
    const declaration = text.slice(match.index, endOf(text, match.index));
    const isLong = first[1] === 'const' && declaration.split('\n').length > CONSTANT_LINES;
    return isLong ? `${declaration.split('\n')[0]} … };` : declaration;
  });
  return {
    comment: commentBefore(text, first.index),
    text: declarations.map(shortened).join('\n'),
  };
}

/** A declaration as the page shows it: without `readonly`, which holds for every field, and with short comments. */
function shortened(declaration) {
  return declaration
    .replace(/^export (declare )?/, '')
    .replace(/^ *#private;\n/m, '')
    .replace(/\breadonly (?=\w+\??[:(]|\[)/g, '')
    .replace(/^( *)\/\*\*\n(.*?)\n *\*\//gms, (_, indent, lines) => lines.replace(/^ *\*/gm, `${indent}//`))
    .replace(/\/\*\*(.*?) \*\//g, '//$1');
}

/** The end of the declaration that begins there: the line on which all brackets are closed again. */
function endOf(text, start) {
  let depth = 0;
  let place = start;
  for (const line of text.slice(start).split(/(?<=\n)/)) {
    place += line.length;
    const bare = line.replace(/\/\*\*.*?\*\/|'[^']*'|^\s*\*.*$|\/\*\*.*$/g, '').replaceAll('=>', '');
    depth += (bare.match(/[{([]/g)?.length ?? 0) - (bare.match(/[})\]]/g)?.length ?? 0);
    if (depth === 0 && /[;}]\s*$/.test(line)) return place - 1;
  }
  return text.length;
}

/** The doc comment that ends right before a place, as running text. */
function commentBefore(text, place) {
  const before = text.slice(0, place).trimEnd();
  if (!before.endsWith('*/')) return '';
  const comment = before.slice(before.lastIndexOf('/**') + 3, -2);
  return comment.replace(/^\s*\* ?/gm, '').trim();
}

/** Doc comments are Markdown, except that angle brackets would be taken for elements of the page. */
function inline(comment) {
  return comment
    .replace(/\{@link ([^}]*)\}/g, '`$1`')
    .split(/(`[^`]*`)/)
    .map((part) => (part.startsWith('`') ? part : part.replaceAll('<', '&lt;').replaceAll('{{', '{ {')))
    .join('')
    .replace(/^@(\w+) /gm, '\n**$1** ')
    .trim();
}
