import type { ChatTool } from './chat-request.js';
import { isObject, type JsonObject, parseObject } from './errors.js';
import type { RequestValue } from './request-value.js';

/** A JSON schema, as far as the arguments of known tools need one. */
interface Schema {
  readonly type: 'string' | 'integer' | 'number' | 'boolean' | 'array' | 'object';
  readonly [keyword: string]: unknown;
}

const TEXT: Schema = { type: 'string' };
const NUMBER: Schema = { type: 'integer' };
const FLAG: Schema = { type: 'boolean' };
const TEXTS = listOf(TEXT);
const PLACE = listOf(NUMBER);

function listOf(items: Schema): Schema {
  return { type: 'array', items };
}

function oneOf(...names: readonly string[]): Schema {
  return { type: 'string', enum: names };
}

function objectOf(properties: Readonly<Record<string, Schema>>, ...required: readonly string[]): Schema {
  return { type: 'object', properties, required };
}

const POINTER = ['left_click', 'right_click', 'middle_click', 'double_click', 'triple_click', 'mouse_move'];
const MOUSE = ['left_click_drag', 'left_mouse_down', 'left_mouse_up', 'scroll', 'cursor_position'];
const EDITS = { file_text: TEXT, old_str: TEXT, new_str: TEXT, insert_line: NUMBER, insert_text: TEXT };

/** Tools of Anthropic's that the client runs: what a model that does not know them has to know. */
const MESSAGES_TOOLS: ReadonlyMap<string, readonly [description: string, input: Schema]> = new Map([
  [
    'bash',
    [
      'Runs a command in a bash session that stays open. `restart` begins a new one.',
      objectOf({ command: TEXT, restart: FLAG }),
    ],
  ],
  [
    'text_editor',
    [
      'Views, creates and edits text files. `insert` puts a text behind a line; `view_range` is the first and the last line.',
      objectOf(
        { command: oneOf('view', 'create', 'str_replace', 'insert'), path: TEXT, ...EDITS, view_range: PLACE },
        'command',
        'path',
      ),
    ],
  ],
  [
    'memory',
    [
      'Keeps notes as text files below /memories, which stay from one conversation to the next.',
      objectOf(
        {
          command: oneOf('view', 'create', 'str_replace', 'insert', 'delete', 'rename'),
          path: TEXT,
          old_path: TEXT,
          new_path: TEXT,
          ...EDITS,
          view_range: PLACE,
        },
        'command',
      ),
    ],
  ],
  [
    'computer',
    [
      'Uses the mouse and the keyboard, and takes pictures of the screen. `coordinate` is x and y; keys are written as `ctrl+s`.',
      objectOf(
        {
          action: oneOf('screenshot', 'key', 'hold_key', 'type', 'wait', 'zoom', ...POINTER, ...MOUSE),
          coordinate: PLACE,
          start_coordinate: PLACE,
          text: TEXT,
          scroll_direction: oneOf('up', 'down', 'left', 'right'),
          scroll_amount: NUMBER,
          duration: { type: 'number' },
          region: PLACE,
        },
        'action',
      ),
    ],
  ],
]);

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
  description: 'Uses the mouse and the keyboard, and takes pictures of the screen.',
  item: { pending_safety_checks: [] },
};
const COMPUTER_ACTION = objectOf(
  {
    type: oneOf('screenshot', 'click', 'double_click', 'drag', 'keypress', 'move', 'scroll', 'type', 'wait'),
    x: NUMBER,
    y: NUMBER,
    button: oneOf('left', 'right', 'wheel', 'back', 'forward'),
    scroll_x: NUMBER,
    scroll_y: NUMBER,
    text: TEXT,
    keys: TEXTS,
    path: listOf(objectOf({ x: NUMBER, y: NUMBER }, 'x', 'y')),
  },
  'type',
);

/** By the type of the tool. */
const ITEM_TOOLS: ReadonlyMap<unknown, ItemTool> = new Map<string, ItemTool>([
  [
    'local_shell',
    {
      name: 'local_shell',
      description: 'Runs a program with its arguments, for instance ["bash", "-lc", "ls"].',
      member: 'action',
      schema: objectOf({ command: TEXTS, working_directory: TEXT, timeout_ms: NUMBER }, 'command'),
      defaults: { type: 'exec', env: {} },
    },
  ],
  [
    'shell',
    {
      name: 'shell',
      description: 'Runs shell commands.',
      member: 'action',
      schema: objectOf({ commands: TEXTS, timeout_ms: NUMBER, max_output_length: NUMBER }, 'commands'),
      item: { environment: { type: 'local' } },
      defaults: { timeout_ms: null, max_output_length: null },
    },
  ],
  [
    'apply_patch',
    {
      name: 'apply_patch',
      description:
        'Creates, changes or deletes one file. `diff` has its lines: `+` before new ones, `-` before removed ones, a space before others, and `@@` before each part that changes.',
      member: 'operation',
      schema: objectOf(
        { type: oneOf('create_file', 'update_file', 'delete_file'), path: TEXT, diff: TEXT },
        'type',
        'path',
      ),
    },
  ],
  ['computer_use_preview', { ...COMPUTER, member: 'action', schema: COMPUTER_ACTION }],
  ['computer', { ...COMPUTER, member: 'actions', schema: listOf(COMPUTER_ACTION) }],
]);

/** A tool of Anthropic's that the client runs, as a function; `undefined` for any other. */
export function clientTool(tool: RequestValue): ChatTool | undefined {
  const [, kind] = /^(\w+)_\d{8}$/.exec(tool.get('type').string()) ?? [];
  const known = kind === undefined ? undefined : MESSAGES_TOOLS.get(kind);
  if (known === undefined) return undefined;
  const [description, input] = known;
  return functionOf(tool.get('name').string(), description + screenOf(tool, '_px'), input);
}

/** A tool of OpenAI's that the client runs, as a function; `undefined` for any other. A shell may run at OpenAI. */
export function itemTool(tool: RequestValue): ChatTool | undefined {
  const known = ITEM_TOOLS.get(tool.get('type').value);
  const environment = tool.get('environment');
  if (known === undefined || (isObject(environment.value) && environment.get('type').value !== 'local'))
    return undefined;
  const { name, description, member, schema } = known;
  return functionOf(name, description + screenOf(tool, ''), objectOf({ [member]: schema }, member));
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
  return { type: `${name}_call`, ...item, [member]: isObject(value) ? { ...defaults, ...value } : value };
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
