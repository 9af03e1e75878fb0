import { type ChatTool, writeJson } from './chat-request.js';
import { isObject, type JsonObject, parseObject } from './errors.js';
import type { RequestValue } from './request-value.js';

/** A JSON schema, as far as the arguments of known tools need one. */
interface Schema {
  readonly type: string;
  readonly [keyword: string]: unknown;
}

const TYPES: Readonly<Record<string, Schema>> = {
  text: { type: 'string' },
  count: { type: 'integer' },
  number: { type: 'number' },
  flag: { type: 'boolean' },
};

/**
 * A schema from a list of arguments: `name` of a text, `name:type`, `name:type[]` of a list, `name=one|other` of words;
 * a `!` behind it where it must be given.
 */
function objectOf(list: string): Schema {
  const given = list.split(/\s+/).map((argument) => /^(\w+)(?::(\w+)(\[\])?)?(?:=([\w|]+))?(!)?$/.exec(argument)!);
  const properties = given.map(([, name, type = 'text', isList, words]) => {
    const one = words === undefined ? TYPES[type]! : { type: 'string', enum: words.split('|') };
    return [name, isList === undefined ? one : listOf(one)] as const;
  });
  const required = given.flatMap(([, name, , , , must]) => (must === undefined ? [] : [name]));
  return { type: 'object', properties: Object.fromEntries(properties), required };
}

function listOf(items: object): Schema {
  return { type: 'array', items };
}

const EDITS = 'file_text old_str new_str insert_line:count insert_text view_range:count[]';

/** Tools of Anthropic's that the client runs: what a model that does not know them has to know. */
const MESSAGES_TOOLS: Readonly<Record<string, readonly [description: string, input: string]>> = {
  bash: ['Runs a command in a bash session that stays open. `restart` begins a new one.', 'command restart:flag'],
  text_editor: [
    'Views, creates and edits text files. `insert` puts a text behind a line; `view_range` is the first and last line.',
    `command=view|create|str_replace|insert! path! ${EDITS}`,
  ],
  memory: [
    'Keeps notes as text files below /memories, which stay from one conversation to the next.',
    `command=view|create|str_replace|insert|delete|rename! path old_path new_path ${EDITS}`,
  ],
  computer: [
    'Uses mouse and keyboard, and takes pictures of the screen. `coordinate` is x and y; keys are written as `ctrl+s`.',
    'action=screenshot|key|hold_key|type|wait|zoom|left_click|right_click|middle_click|double_click|triple_click|mouse_move|left_click_drag|left_mouse_down|left_mouse_up|scroll|cursor_position! coordinate:count[] start_coordinate:count[] text scroll_direction=up|down|left|right scroll_amount:count duration:number region:count[]',
  ],
};

/** A tool of Responses whose calls are items of their own. */
interface ItemTool {
  /** Of its function; its calls are items of this name and `_call`. */
  readonly name: string;
  readonly description: string;
  /** The member of the item that has the arguments, and their schema. */
  readonly member: string;
  readonly schema: Schema;
  /** What the item has beside, and what its member has where the model does not say otherwise. */
  readonly item?: JsonObject;
  readonly defaults?: JsonObject;
}

const COMPUTER = {
  name: 'computer',
  description: 'Uses mouse and keyboard, and takes pictures of the screen.',
  item: { pending_safety_checks: [] },
};
const { properties: actions, ...ACTION } = objectOf(
  'type=screenshot|click|double_click|drag|keypress|move|scroll|type|wait! x:count y:count button=left|right|wheel|back|forward scroll_x:count scroll_y:count text keys:text[]',
);
const COMPUTER_ACTION: Schema = {
  ...ACTION,
  properties: { ...(actions as object), path: listOf(objectOf('x:count! y:count!')) },
};

/** By the type of the tool. */
const ITEM_TOOLS: ReadonlyMap<unknown, ItemTool> = new Map<string, ItemTool>(
  Object.entries({
    local_shell: {
      name: 'local_shell',
      description: 'Runs a program with its arguments, for instance ["bash", "-lc", "ls"].',
      member: 'action',
      schema: objectOf('command:text[]! working_directory timeout_ms:count'),
      defaults: { type: 'exec', env: {} },
    },
    shell: {
      name: 'shell',
      description: 'Runs shell commands.',
      member: 'action',
      schema: objectOf('commands:text[]! timeout_ms:count max_output_length:count'),
      item: { environment: { type: 'local' } },
      defaults: { timeout_ms: null, max_output_length: null },
    },
    apply_patch: {
      name: 'apply_patch',
      description:
        'Creates, changes or deletes one file. Lines of `diff` begin with `+` where they are new, `-` where they go, and a space otherwise; `@@` stands before each part that changes.',
      member: 'operation',
      schema: objectOf('type=create_file|update_file|delete_file! path! diff'),
    },
    computer_use_preview: { ...COMPUTER, member: 'action', schema: COMPUTER_ACTION },
    computer: { ...COMPUTER, member: 'actions', schema: listOf(COMPUTER_ACTION) },
  }),
);

/** A tool of Anthropic's that the client runs, as a function; `undefined` for any other. */
export function clientTool(tool: RequestValue): ChatTool | undefined {
  const [, kind] = /^(\w+)_\d{8}$/.exec(tool.get('type').string()) ?? [];
  if (kind === undefined || !Object.hasOwn(MESSAGES_TOOLS, kind)) return undefined;
  const [description, input] = MESSAGES_TOOLS[kind]!;
  return functionOf(tool.get('name').string(), description + screenOf(tool, '_px'), objectOf(input));
}

/** A tool of OpenAI's that the client runs, as a function; `undefined` for any other. A shell may run at OpenAI. */
export function itemTool(tool: RequestValue): ChatTool | undefined {
  const known = ITEM_TOOLS.get(tool.get('type').value);
  const environment = tool.get('environment');
  if (known === undefined || (isObject(environment.value) && environment.get('type').value !== 'local'))
    return undefined;
  const { name, description, member, schema } = known;
  return functionOf(name, description + screenOf(tool, ''), {
    type: 'object',
    properties: { [member]: schema },
    required: [member],
  });
}

/** The name of the function for a tool that has none of its own. */
export function itemToolName(type: unknown): string | undefined {
  return ITEM_TOOLS.get(type)?.name;
}

/**
 * The item of a call, without its id and status; `undefined` for arguments that the tool does not have.
 *
 * @param type The type of the tool.
 */
export function callItem(type: string, text: string): JsonObject | undefined {
  const { name, member, schema, item, defaults } = ITEM_TOOLS.get(type)!;
  const given = parseObject(text);
  // Models leave out the outer object.
  const value = [given?.[member], given].find((each) => fits(schema, each));
  if (value === undefined) return undefined;
  return { type: `${name}_call`, ...item, [member]: isObject(value) ? { ...value, ...defaults, ...value } : value };
}

/** The arguments of a call as `callItem` got them: without what it added. `undefined` for an item of another kind. */
export function argumentsOfItem(item: RequestValue): string | undefined {
  const isItsOwn = ({ name, member }: ItemTool) =>
    item.get('type').value === `${name}_call` && isObject(item.get(member).value);
  const known = [...ITEM_TOOLS.values()].find(isItsOwn);
  if (known === undefined) return undefined;
  const { member, defaults = {} } = known;
  const value = item.get(member);
  const isAdded = (name: string) => JSON.stringify(value.get(name).value) === JSON.stringify(defaults[name]);
  return writeJson({ [member]: value.rawMembersExcept(new Set(Object.keys(defaults).filter(isAdded))) });
}

function functionOf(name: string, description: string, parameters: object): ChatTool {
  return { type: 'function', function: { name, description, parameters } };
}

function screenOf(tool: RequestValue, unit: string): string {
  const [width, height] = ['width', 'height'].map((side) => tool.get(`display_${side}${unit}`).value);
  return typeof width === 'number' && typeof height === 'number' ? ` The screen has ${width} x ${height} pixels.` : '';
}

/** Whether a value has the form that a client needs to run the tool. */
function fits({ type, items, properties = {}, required = [] }: Schema, value: unknown): boolean {
  if (type === 'array') return Array.isArray(value) && value.every((each) => fits(items as Schema, each));
  if (type !== 'object') return type === 'integer' || typeof value === type;
  const schemas = properties as Readonly<Record<string, Schema>>;
  return isObject(value) && (required as readonly string[]).every((name) => fits(schemas[name]!, value[name]));
}
