import { Environment, Interpreter, Template } from '@huggingface/jinja';

// The library's own declarations do not resolve in ES modules.

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
/** A node of a parsed template; which fields it has depends on its type. */
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
const NewScope = Environment as unknown as new () => Scope;
const BaseInterpreter = Interpreter as unknown as new (scope: Scope) => NodeInterpreter;

/** Filters that give an empty list, or an empty text, for a value that is missing. */
const LIST_FILTERS = new Set('list items selectattr rejectattr select reject map sort dictsort'.split(' '));
const TEXT_FILTERS = new Set('trim string lower upper title capitalize join replace indent'.split(' '));

const toValue = (value: unknown): RuntimeValue => new NewScope().set('value', value);

/** A node whose value is known. */
const evaluated = (value: RuntimeValue): Node => ({ type: 'Evaluated', value });

const isMissing = ({ type }: RuntimeValue): boolean => type === 'UndefinedValue' || type === 'NullValue';

/** A Jinja template: `@huggingface/jinja`, and what templates use beside it that Python and llama.cpp have. */
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
    const dates = { date_string: this.#strftime('%d %b %Y'), datetime: this.#strftime('%b %d %Y') };
    for (const [name, value] of Object.entries({ ...dates, ...variables, ...constants, ...functions })) {
      scope.setVariable(name, toValue(value));
    }
    return String(new ChatInterpreter(scope).run(this.#program).value);
  }
}

class ChatInterpreter extends BaseInterpreter {
  override evaluate(node: Node | undefined, scope: Scope): RuntimeValue {
    const evaluate = (each: Node): RuntimeValue => this.evaluate(each, scope);
    const passOn = (each: Node | undefined): RuntimeValue => super.evaluate(each, scope);
    switch (node?.type) {
      case 'Evaluated':
        return node.value as RuntimeValue;
      case 'TupleLiteral':
        // The library takes lists apart into several variables, and tuples not.
        return passOn({ ...node, type: 'ArrayLiteral' });
      case 'For':
        return passOn({ ...node, iterable: orEmpty(node.iterable!) });
      case 'FilterExpression': {
        const operand = evaluate(node.operand!);
        return filtered(operand, node.filter!) ?? passOn({ ...node, operand: evaluated(operand) });
      }
      case 'CallExpression': {
        const { callee, args = [] } = node;
        if (callee?.type !== 'MemberExpression' || callee.computed === true) return passOn(node);
        const object = evaluate(callee.object!);
        const result = calledMethod(object, String(callee.property!.value), () => args.map(evaluate));
        return result ?? passOn({ ...node, callee: { ...callee, object: evaluated(object) } });
      }
      case 'BinaryExpression': {
        const operator = node.operator!.value;
        if (operator === 'and' || operator === 'or') return passOn(node);
        const both = [evaluate(node.left!), evaluate(node.right!)];
        const [left, right] = both.map((value) => evaluated(operand(value, operator, both)));
        return passOn({ ...node, left: left!, right: right! });
      }
      case 'ObjectLiteral': {
        // The library takes texts alone for keys.
        const entries = [...(node.value as Map<Node, Node>)].map(
          ([key, value]) => [evaluated(toValue(String(evaluate(key).value))), value] as const,
        );
        return passOn({ ...node, value: new Map(entries) });
      }
      default:
        return passOn(node);
    }
  }
}

const OR_EMPTY = (new Template('{{ list | default([], true) }}').parsed as unknown as { body: Node[] }).body[0]!;

/** A loop's list, with `if` or without; nothing to go through where it is missing. */
function orEmpty(iterable: Node): Node {
  return iterable.type === 'SelectExpression'
    ? { ...iterable, lhs: orEmpty(iterable.lhs!) }
    : { ...OR_EMPTY, operand: iterable };
}

/** An operand as llama.cpp takes it: what is missing joins a text as an empty one, and keys are compared as numbers. */
function operand(value: RuntimeValue, operator: string, both: readonly RuntimeValue[]): RuntimeValue {
  const is = (type: string): boolean => both.some((each) => each.type === type);
  if (operator === '+' || operator === '~') return isMissing(value) && is('StringValue') ? toValue('') : value;
  const isOrder = operator.startsWith('<') || operator.startsWith('>');
  return isOrder && value.type === 'StringValue' && is('IntegerValue') ? toValue(Number(value.value)) : value;
}

/** `undefined` for what the library does itself. */
function filtered(operand: RuntimeValue, filter: Node): RuntimeValue | undefined {
  const name = String(filter.type === 'CallExpression' ? filter.callee!.value : filter.value);
  if (isMissing(operand)) {
    const result = name === 'length' ? 0 : TEXT_FILTERS.has(name) ? '' : LIST_FILTERS.has(name) ? [] : undefined;
    return result === undefined ? undefined : toValue(result);
  }
  if (name === 'string' && operand.type === 'ObjectValue') return toValue(operand.toString());
  if (name === 'from_json' && operand.type === 'StringValue') return toValue(JSON.parse(String(operand.value)));
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
  readArguments: () => RuntimeValue[],
): RuntimeValue | undefined {
  if (object.type === 'StringValue' && name === 'format') {
    const values = readArguments();
    return toValue(String(object.value).replaceAll('{}', () => String(values.shift()?.value ?? '')));
  }
  if (object.type === 'ArrayValue' && name === 'append') {
    (object.value as RuntimeValue[]).push(...readArguments());
    return toValue(null);
  }
  if (object.type === 'ArrayValue' && name === 'pop') {
    const place = Number(readArguments()[0]?.value ?? -1);
    return (object.value as RuntimeValue[]).splice(place, 1)[0] ?? toValue(undefined);
  }
  return undefined;
}

function raise(message: unknown): never {
  throw new Error(String(message));
}

function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0) throw new Error('range() step must not be zero');
  return Array.from({ length: Math.max(0, Math.ceil((to - from) / step)) }, (_, index) => from + index * step);
}

/** The directives of `strftime` that chat templates use; the time is midnight. */
function formatDate(date: Date, format: string): string {
  const text = (options: Intl.DateTimeFormatOptions): string =>
    date.toLocaleString('en-US', { ...options, timeZone: 'UTC' });
  const day = date.toISOString();
  const directives: Record<string, string> = {
    Y: day.slice(0, 4),
    y: day.slice(2, 4),
    m: day.slice(5, 7),
    d: day.slice(8, 10),
    F: day.slice(0, 10),
    b: text({ month: 'short' }),
    B: text({ month: 'long' }),
    a: text({ weekday: 'short' }),
    A: text({ weekday: 'long' }),
    I: '12',
    p: 'AM',
    '%': '%',
  };
  return format.replace(/%([-#]?)([A-Za-z%])/g, (whole, flag: string, letter: string) => {
    const value = directives[letter] ?? (/[HMS]/.test(letter) ? '00' : undefined);
    return value === undefined ? whole : flag === '' ? value : value.replace(/^0+(?=.)/, '');
  });
}
