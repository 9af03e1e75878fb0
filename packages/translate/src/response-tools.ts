import { type CallForm, type ChatTool, describedTool, functionTool, schemaIn } from './chat-request.js';
import { itemTool } from './client-tools.js';
import type { RequestValue } from './request-value.js';

/** OpenAI's models know tools of this namespace without its name. */
const DEFAULT_NAMESPACE = 'functions';

/** The name of the function that stands for a tool of a namespace. */
export function functionName(name: string, namespace: unknown): string {
  if (typeof namespace !== 'string' || namespace === '' || namespace === DEFAULT_NAMESPACE) return name;
  return namespace.endsWith('__') ? namespace + name : `${namespace}__${name}`;
}

/** The tools of a Responses request as functions, each name once. Tools that run at OpenAI are left out. */
export class ResponseTools {
  readonly #functions = new Map<string, ChatTool>();
  readonly #leftOut: RequestValue[];
  readonly callForms = new Map<string, CallForm>();

  constructor(leftOut: RequestValue[]) {
    this.#leftOut = leftOut;
  }

  get functions(): readonly ChatTool[] {
    return [...this.#functions.values()];
  }

  has(name: string): boolean {
    return this.#functions.has(name);
  }

  /** @throws TranslateError `WARMPATH_INVALID_REQUEST` for what is no list of tools. */
  addAll(tools: RequestValue, namespace?: string): void {
    for (const tool of tools.elements()) this.#add(tool, namespace);
  }

  #add(tool: RequestValue, namespace: string | undefined): void {
    tool.object();
    const type = tool.get('type');
    const known = itemTool(tool);
    if (known !== undefined) this.#addFunction('item', known, undefined, type.string());
    else if (type.value === 'function') this.#addFunction('function', functionTool(tool, 'parameters'), namespace);
    else if (type.value === 'custom') this.#addFunction('custom', textTool(tool), namespace);
    else if (type.value === 'namespace' && namespace === undefined)
      this.addAll(tool.get('tools'), tool.get('name').string());
    else if (type.value === 'tool_search' && tool.get('execution').value === 'client')
      this.#addFunction('search', describedTool(tool, 'tool_search', schemaIn(tool.get('parameters'))), namespace);
    else this.#leftOut.push(type);
  }

  #addFunction(kind: CallForm['kind'], tool: ChatTool, namespace: string | undefined, type?: string): void {
    const { name } = tool.function;
    const flat = functionName(name, namespace);
    if (this.#functions.has(flat)) return;
    this.#functions.set(flat, { ...tool, function: { ...tool.function, name: flat } });
    if (kind === 'function' && flat === name) return;
    this.callForms.set(flat, { kind, name, namespace: flat === name ? undefined : namespace, type });
  }
}

/** A tool with a free text, as a function with one argument. A grammar becomes a part of the description. */
function textTool(tool: RequestValue): ChatTool {
  const definition = tool.get('format').get('definition').value;
  const grammar = typeof definition === 'string' ? { description: `A text of this grammar:\n${definition}` } : {};
  const properties = { input: { type: 'string', ...grammar } };
  return describedTool(tool, tool.get('name').string(), { type: 'object', properties, required: ['input'] });
}
