import { Environment, Interpreter, Template } from '@huggingface/jinja';

/** The parts of the library that are used here: its own declarations of them do not resolve in ES modules. */
interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
  toString(): string;
}
interface Scope {
  set(name: string, value: unknown): RuntimeValue;
  setVariable(name: string, value: RuntimeValue): RuntimeValue;
}
interface NodeInterpreter {
  run(program: unknown): RuntimeValue;
  evaluate(node: Node | undefined, scope: Scope): RuntimeValue;
}
const NewScope = Environment as unknown as new () => Scope;
const BaseInterpreter = Interpreter as unknown as new (scope: Scope) => NodeInterpreter;

/** What chat templates use of the nodes of a parsed template. */
interface Node {
  readonly type: string;
  readonly value?: unknown;
  readonly operand?: Node;
  readonly filter?: Node;
  readonly callee?: Node;
  readonly args?: readonly Node[];
  readonly object?: Node;
  readonly property?: Node;
  readonly computed?: boolean;
  readonly iterable?: Node;
  readonly lhs?: Node;
  readonly left?: Node;
  readonly right?: Node;
  readonly operator?: { readonly value: string };
}

/** A value that stands in a node's place. */
const EVALUATED = 'Evaluated';

/** A filter of an undefined value gives what the filter gives for an empty one, as in Jinja. */
const EMPTY_LISTS = new Set([
  'list',
  'items',
  'selectattr',
  'rejectattr',
  'select',
  'reject',
  'map',
  'sort',
  'dictsort',
]);
const EMPTY_TEXTS = new Set(['trim', 'string', 'lower', 'upper', 'title', 'capitalize', 'join', 'replace', 'indent']);

const toValue = (value: unknown): RuntimeValue => new NewScope().set('value', value);

const isMissing = ({ type }: RuntimeValue): boolean => type === 'UndefinedValue' || type === 'NullValue';

/**
 * A Jinja template as chat templates use it: `@huggingface/jinja`, and what Python and llama.cpp have beside it. These
 * are loops over and filters of undefined values, `format`, `append` and `pop`, the filters `string`, `min`, `max` and
 * `from_json` for all values, and keys of dictionaries that are numbers.
 */
export class JinjaTemplate {
  readonly #program: unknown;
  readonly #strftime: (format: string) => string;

  /**
   * @param date What `strftime_now` takes for today.
   * @throws Error from the parser.
   */
  constructor(source: string, date: Date) {
    this.#program = new Template(source).parsed;
    this.#strftime = (format) => formatDate(date, format);
  }

  /** @throws Error of the template's own or of the interpreter. */
  render(variables: Readonly<Record<string, unknown>>): string {
    const scope = new NewScope();
    const constants = { true: true, false: false, none: null, True: true, False: false, None: null };
    const functions = { raise_exception: raise, range, strftime_now: this.#strftime };
    for (const [name, value] of Object.entries({ ...variables, ...constants, ...functions })) {
      scope.setVariable(name, toValue(value));
    }
    const result = new ChatInterpreter(scope).run(this.#program);
    return String(result.value);
  }
}

class ChatInterpreter extends BaseInterpreter {
  override evaluate(node: Node | undefined, scope: Scope): RuntimeValue {
    const evaluate = (each: Node): RuntimeValue => this.evaluate(each, scope);
    const passOn = (each: Node): RuntimeValue => super.evaluate(each, scope);
    switch (node?.type) {
      case EVALUATED:
        return node.value as RuntimeValue;
      case 'For':
        return passOn({ ...node, iterable: orEmpty(node.iterable!) });
      case 'Iterable': {
        const value = evaluate(node.operand!);
        const list = (items: readonly RuntimeValue[]): RuntimeValue =>
          evaluate({ type: 'ArrayLiteral', value: items.map((item) => ({ type: EVALUATED, value: item })) });
        if (value.type !== 'ArrayValue') {
          return isMissing(value) ? toValue([]) : value;
        }
        // The library takes lists apart into several variables, and tuples not.
        const isTuple = ({ type }: RuntimeValue): boolean => type === 'TupleValue';
        const items = value.value as RuntimeValue[];
        return items.some(isTuple)
          ? list(items.map((item) => (isTuple(item) ? list(item.value as RuntimeValue[]) : item)))
          : value;
      }
      case 'FilterExpression': {
        const operand = evaluate(node.operand!);
        const name = filterName(node.filter!);
        return filtered(operand, name) ?? passOn({ ...node, operand: { type: EVALUATED, value: operand } });
      }
      case 'CallExpression': {
        const { callee, args = [] } = node;
        if (callee?.type !== 'MemberExpression' || callee.computed === true) {
          return passOn(node);
        }
        const object = evaluate(callee.object!);
        const called = calledMethod(object, String(callee.property!.value), args, evaluate);
        return called ?? passOn({ ...node, callee: { ...callee, object: { type: EVALUATED, value: object } } });
      }
      case 'BinaryExpression': {
        const operator = node.operator!.value;
        if (operator === 'and' || operator === 'or') {
          return passOn(node);
        }
        const both = [evaluate(node.left!), evaluate(node.right!)];
        const [left, right] = both.map((value) => ({ type: EVALUATED, value: operand(value, operator, both) }));
        return passOn({ ...node, left: left!, right: right! });
      }
      case 'ObjectLiteral': {
        const entries = [...(node.value as Map<Node, Node>)].map(([key, value]) => {
          const name = evaluate(key);
          return [{ type: 'StringLiteral', value: String(name.value) }, value] as const;
        });
        return passOn({ ...node, value: new Map(entries) });
      }
      default:
        return super.evaluate(node, scope);
    }
  }
}

/** A loop's list, with `if` or without; nothing to go through where it is undefined. */
function orEmpty(iterable: Node): Node {
  return iterable.type === 'SelectExpression'
    ? { ...iterable, lhs: orEmpty(iterable.lhs!) }
    : { type: 'Iterable', operand: iterable };
}

/** An operand as llama.cpp takes it: nothing joins a text as an empty one, and keys are compared as numbers. */
function operand(value: RuntimeValue, operator: string, both: readonly RuntimeValue[]): RuntimeValue {
  const is = (type: string): boolean => both.some((each) => each.type === type);
  if (operator === '+' || operator === '~') {
    return isMissing(value) && is('StringValue') ? toValue('') : value;
  }
  const isOrder = operator.startsWith('<') || operator.startsWith('>');
  return isOrder && value.type === 'StringValue' && is('IntegerValue') ? toValue(Number(value.value)) : value;
}

function filterName(filter: Node): string {
  return String(filter.type === 'CallExpression' ? filter.callee!.value : filter.value);
}

/** `undefined` for what the library does itself. */
function filtered(operand: RuntimeValue, name: string): RuntimeValue | undefined {
  if (isMissing(operand)) {
    return name === 'length'
      ? toValue(0)
      : EMPTY_TEXTS.has(name)
        ? toValue('')
        : EMPTY_LISTS.has(name)
          ? toValue([])
          : undefined;
  }
  if (name === 'string' && operand.type === 'ObjectValue') {
    return toValue(operand.toString());
  }
  if (name === 'from_json' && operand.type === 'StringValue') {
    return toValue(JSON.parse(String(operand.value)));
  }
  if ((name === 'min' || name === 'max') && operand.type === 'ArrayValue') {
    const numbers = (operand.value as RuntimeValue[]).map(({ value }) => Number(value));
    return toValue(numbers.length === 0 ? undefined : Math[name](...numbers));
  }
  return undefined;
}

/** `undefined` for what the library does itself. */
function calledMethod(
  object: RuntimeValue,
  name: string,
  args: readonly Node[],
  evaluate: (node: Node) => RuntimeValue,
): RuntimeValue | undefined {
  if (object.type === 'StringValue' && name === 'format') {
    const values = args.map((each) => String(evaluate(each).value));
    return toValue(String(object.value).replaceAll('{}', () => values.shift() ?? ''));
  }
  if (object.type !== 'ArrayValue' || (name !== 'append' && name !== 'pop')) {
    return undefined;
  }
  const items = object.value as RuntimeValue[];
  if (name === 'append') {
    items.push(...args.map(evaluate));
    return toValue(null);
  }
  const place = args[0] === undefined ? -1 : Number(evaluate(args[0]).value);
  return items.splice(place, 1)[0] ?? toValue(undefined);
}

function raise(message: unknown): never {
  throw new Error(String(message));
}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0) {
    throw new Error('range() step must not be zero');
  }
  return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, index) => from + index * step);
}

/** The directives of `strftime` that chat templates use; the time is midnight. */
function formatDate(date: Date, format: string): string {
  const text = (options: Intl.DateTimeFormatOptions): string =>
    new Intl.DateTimeFormat('en-US', { ...options, timeZone: 'UTC' }).format(date);
  const number = (value: number): string => String(value).padStart(2, '0');
  const directives: Record<string, () => string> = {
    Y: () => String(date.getUTCFullYear()),
    y: () => number(date.getUTCFullYear() % 100),
    m: () => number(date.getUTCMonth() + 1),
    d: () => number(date.getUTCDate()),
    b: () => text({ month: 'short' }),
    B: () => text({ month: 'long' }),
    a: () => text({ weekday: 'short' }),
    A: () => text({ weekday: 'long' }),
    F: () => date.toISOString().slice(0, 10),
    H: () => '00',
    I: () => '12',
    M: () => '00',
    S: () => '00',
    p: () => 'AM',
    Z: () => 'UTC',
    z: () => '+0000',
    '%': () => '%',
  };
  return format.replace(/%([-#]?)([A-Za-z%])/g, (whole, flag: string, letter: string) => {
    const value = directives[letter]?.();
    return value === undefined ? whole : flag === '' ? value : value.replace(/^0+(?=.)/, '');
  });
}
