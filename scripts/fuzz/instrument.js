// Loader hooks that put a counter at every branch of Warmpath's own built code, so that a fuzzer knows which inputs
// reach what none has reached before. Positions come from a parser; the code is otherwise unchanged.
import { parse } from 'acorn';

const BUILT = /\/packages\/[a-z-]+\/dist\/.*\.js$/;
const ID = '$branch';

export async function load(url, context, nextLoad) {
  const loaded = await nextLoad(url, context);
  if (loaded.format !== 'module' || !BUILT.test(url)) return loaded;
  return { ...loaded, source: instrument(loaded.source.toString()) };
}

/** The source with `$branch[n]++` wherever control may go two ways. */
function instrument(source) {
  const inserted = [];
  let branches = 0;
  const count = () => `${ID}[${branches++}]++`;
  const insert = (at, text) => inserted.push({ at, text, order: inserted.length });
  const statement = (node) => {
    if (node == null) return;
    if (node.type === 'BlockStatement') insert(node.start + 1, `${count()};`);
    else {
      insert(node.start, `{${count()};`);
      insert(node.end, '}');
    }
  };
  const expression = (node) => {
    insert(node.start, `(${count()},`);
    insert(node.end, ')');
  };
  const visit = (node) => {
    if (node === null || typeof node !== 'object') return;
    if (Array.isArray(node)) {
      for (const each of node) visit(each);
      return;
    }
    if (typeof node.type !== 'string') return;
    // An insertion of an inner node at the same place must stand inside that of the outer one.
    if (/Function/.test(node.type)) {
      if (node.body.type === 'BlockStatement') statement(node.body);
      else expression(node.body);
    } else if (node.type === 'IfStatement') {
      statement(node.consequent);
      statement(node.alternate);
    } else if (/^(?:For|While|DoWhile)/.test(node.type)) statement(node.body);
    else if (node.type === 'ConditionalExpression') {
      expression(node.consequent);
      expression(node.alternate);
    } else if (node.type === 'LogicalExpression') expression(node.right);
    else if (node.type === 'SwitchCase' && node.consequent.length > 0) {
      insert(node.consequent[0].start, `${count()};`);
    } else if (node.type === 'TryStatement' && node.handler !== null) statement(node.handler.body);
    for (const key of Object.keys(node)) if (key !== 'type') visit(node[key]);
  };
  visit(parse(source, { ecmaVersion: 'latest', sourceType: 'module' }));
  return `const ${ID} = globalThis[Symbol.for('warmpath.fuzz')].region(${branches});${written(source, inserted)}`;
}

/** Outer nodes are visited first: what opens stands in that order, what closes in the other. */
function written(source, inserted) {
  const isClosing = ({ text }) => text === '}' || text === ')';
  inserted.sort((a, b) => {
    if (a.at !== b.at) return a.at - b.at;
    if (isClosing(a) !== isClosing(b)) return isClosing(a) ? -1 : 1;
    return isClosing(a) ? b.order - a.order : a.order - b.order;
  });
  let from = 0;
  const parts = [];
  for (const { at, text } of inserted) {
    parts.push(source.slice(from, at), text);
    from = at;
  }
  return parts.join('') + source.slice(from);
}
