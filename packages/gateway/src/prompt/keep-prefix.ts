import { byteChain, keySorted, messageChain, TenantCache } from '@warmpath/core/internal';
import { type PromptApi, PromptView } from '../apis/prompt-view.js';
import { chatBodyOf } from '../apis/translate-request.js';
import type { GatewayConfig, PrefixKeeperName } from '../config/schema.js';
import { bodyOf } from '../intake/request-body.js';
import { applyEdits, BodyView, type ByteEdit, withoutMembers } from '../json/json-body.js';
import { type ByteSpan, isObject, JsonScanner, parseJson } from '../json/json-scanner.js';
import type { Call } from '../shapes/shapes.js';

/** Claude Code begins its system prompt with this line, whose values change with the session or the request. */
const BILLING_LINE = Buffer.from('"x-anthropic-billing-header:');
const BILLING_VALUE = ' constant;';
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const MARK = 'cache_control';
const MARK_KEY = Buffer.from(`"${MARK}"`);
const MARKS: ReadonlySet<string> = new Set([MARK]);
/** Members whose parts may have marks. Inputs of tools and schemas are the client's data. */
const MARKED_MEMBERS: ReadonlySet<string> = new Set(['content', 'source', 'function']);
const TOOLS_KEY = Buffer.from('"tools"');

/** Bytes of an entry without a value. */
const ENTRY_BYTES = 64;
/** Lists of tools with the same first tool that are remembered: an agent and its sub-agents have different ones. */
const MAX_LISTS = 4;
/** Bytes of earlier lists that are compared with a new one, by its own length. */
const MAX_COMPARED = 4;

export interface PrefixKeeperOptions {
  /** What is sent as the client wrote it; a reload may change it. */
  readonly config: Pick<GatewayConfig, 'unchanged'>;
  /** Bytes for lists of tools. */
  readonly maxBytes: number;
  /** Whether an engine may read marks for its cache in requests of this API. */
  readonly readsMarks: (api: PromptApi) => boolean;
  /** Whether an engine is Anthropic's, for which the billing line is. */
  readonly readsBillingLine: () => boolean;
}

/** A body, and what in it was changed so that it begins as earlier ones did. */
export interface KeptBody {
  readonly body: Buffer;
  readonly kept: readonly PrefixKeeperName[];
}

const NOTHING: KeptBody['kept'] = [];
/** Those that change what the engine reads. */
const WRITES_PROMPT: ReadonlySet<PrefixKeeperName> = new Set(['billing-line', 'tool-order']);

/**
 * Changes what would break the engine's prefix cache and says nothing to the model: a billing line with changing
 * values, marks for a cache that the engine does not read, another order of the same tools. Bounded in bytes.
 */
export class PrefixKeeper {
  readonly #options: PrefixKeeperOptions;
  /** By what they say: lists of tools as they were first sent. By their bytes: whether they are such a list. */
  readonly #tools: TenantCache<Buffer | true>;
  /** The same lists by their first tool, the latest last. */
  readonly #listsByTool: TenantCache<readonly Buffer[]>;

  constructor(options: PrefixKeeperOptions) {
    this.#options = options;
    this.#tools = new TenantCache(options.maxBytes / 2);
    this.#listsByTool = new TenantCache(options.maxBytes / 2);
  }

  get bytes(): number {
    return this.#tools.bytes + this.#listsByTool.bytes;
  }

  /** A body that cannot be read is not changed, nor one that asks for that. O(body). */
  keep({ tenant, api, body }: Pick<Call, 'tenant' | 'api' | 'body'>): KeptBody {
    const { readsMarks, readsBillingLine, config } = this.#options;
    const { unchanged } = config;
    const keepsLine = !unchanged.includes('billing-line') && body.includes(BILLING_LINE) && !readsBillingLine();
    const keepsMarks = !unchanged.includes('cache-marks') && body.includes(MARK_KEY) && !readsMarks(api);
    const keepsTools = !unchanged.includes('tool-order') && body.includes(TOOLS_KEY);
    if (!keepsLine && !keepsMarks && !keepsTools) return { body, kept: NOTHING };
    try {
      const view = new BodyView(body);
      const switches = view.parse('warmpath');
      if (isObject(switches) && switches['bypass'] === true) return { body, kept: NOTHING };
      const line = keepsLine ? billingLine(view, api) : [];
      const marks = keepsMarks ? [...view.without(MARKS), ...marksIn(view)] : [];
      const changed = applyEdits(body, [...line, ...marks]);
      const tools = keepsTools ? this.#toolsIn(changed === body ? view : new BodyView(changed), tenant) : [];
      const kept: PrefixKeeperName[] = [];
      if (line.length > 0) kept.push('billing-line');
      if (marks.length > 0) kept.push('cache-marks');
      if (tools.length > 0) kept.push('tool-order');
      return { body: applyEdits(changed, tools), kept };
    } catch {
      return { body, kept: NOTHING };
    }
  }

  /**
   * The prompt as its client wrote it: with its billing line, and tools in its order. `undefined` where nothing of that
   * was changed. Engines that do not read marks for a cache compute the same without. O(body).
   */
  withoutKeeping({ request, api, route, translation }: Call): Buffer | undefined {
    if (!request.report.keptPrefix.some((name) => WRITES_PROMPT.has(name))) return undefined;
    const body = bodyOf(request);
    if (translation !== undefined) return chatBodyOf(route, body);
    const view = new BodyView(body);
    return applyEdits(body, this.#options.readsMarks(api) ? [] : marksIn(view));
  }

  /** The same tools as before go out in the bytes that were sent first; new ones stand behind those sent first. */
  #toolsIn(view: BodyView, tenant: string): readonly ByteEdit[] {
    const span = view.value('tools');
    if (span === undefined || !view.scan.isArray(span)) return [];
    const bytes = view.bytes.subarray(span.start, span.end);
    const [ownKey] = byteChain(bytes, [{ start: 0, end: bytes.length }]);
    if (this.#tools.get(tenant, ownKey!) !== undefined) return [];
    const own = readTools(bytes);
    const said = meaningOf(own);
    const [key] = messageChain([said], 'tools');
    const first = this.#tools.get(tenant, key!);
    if (Buffer.isBuffer(first) && String(meaningOf(readTools(first))) === String(said))
      return [{ ...span, pieces: [first] }];
    const list = Buffer.from(own.marks > 0 ? bytes : this.#behindSent(own, tenant));
    this.#tools.set(tenant, key!, list, list.length);
    if (own.marks === 0) this.#remember(list, tenant);
    if (!list.equals(bytes)) return [{ ...span, pieces: [list] }];
    this.#tools.set(tenant, ownKey!, true, ENTRY_BYTES);
    return [];
  }

  /** As many tools as possible with which an earlier list began, as it had them, and then the others. O(list). */
  #behindSent({ bytes, tools }: ToolList, tenant: string): Buffer {
    const left = new Set(tools.map(({ said }) => said));
    if (left.size < tools.length) return bytes;
    let sent: Pick<ToolList, 'bytes' | 'tools'> = { bytes, tools: [] };
    let compared = 0;
    for (const tool of tools) {
      for (const list of this.#listsByTool.get(tenant, toolKey(tool)) ?? []) {
        compared += list.length;
        if (compared > MAX_COMPARED * bytes.length) break;
        const earlier = readTools(list).tools;
        const end = earlier.findIndex(({ said }) => !left.has(said));
        const common = end < 0 ? earlier : earlier.slice(0, end);
        if (common.length > sent.tools.length) sent = { bytes: list, tools: common };
      }
    }
    const last = sent.tools.at(-1);
    if (last === undefined) return bytes;
    const beginning = sent.bytes.subarray(0, last.end);
    if (bytes.subarray(0, last.end).equals(beginning)) return bytes;
    for (const { said } of sent.tools) left.delete(said);
    const others = tools.filter(({ said }) => left.has(said));
    const rest = others.flatMap(({ start, end }) => [COMMA, bytes.subarray(start, end)]);
    return Buffer.concat([beginning, ...rest, LIST_END]);
  }

  #remember(list: Buffer, tenant: string): void {
    const [first] = readTools(list).tools;
    if (first === undefined) return;
    const key = toolKey(first);
    const lists = [...(this.#listsByTool.get(tenant, key) ?? []), list].slice(-MAX_LISTS);
    this.#listsByTool.set(
      tenant,
      key,
      lists,
      lists.reduce((sum, { length }) => sum + length, 0),
    );
  }
}

const COMMA = Buffer.from(',');
const LIST_END = Buffer.from(']');

/** A list of tools: what each says without its mark, and how many marks they have. */
interface ToolList {
  readonly bytes: Buffer;
  readonly tools: readonly (ByteSpan & { readonly said: string })[];
  readonly marks: number;
}

function readTools(bytes: Buffer): ToolList {
  let marks = 0;
  const scan = new JsonScanner(bytes);
  const tools = scan.elements(0).map(({ start, end }) => {
    const tool = parseJson(scan.text({ start, end }));
    if (!isObject(tool)) return { start, end, said: JSON.stringify(tool) };
    const { [MARK]: mark, ...others } = tool;
    if (mark !== undefined) marks++;
    return { start, end, said: JSON.stringify(keySorted(others)) };
  });
  return { bytes, tools, marks };
}

/** What tools say, in an order of their own, and how many marks they have. */
function meaningOf({ tools, marks }: ToolList): readonly string[] {
  return [...tools.map(({ said }) => said).sort(), String(marks)];
}

function toolKey({ said }: ToolList['tools'][number]): string {
  const [key] = messageChain([[said]], 'tool');
  return key!;
}

/** The values of a billing line at the beginning of the system prompt. */
function billingLine(view: BodyView, api: PromptApi): readonly ByteEdit[] {
  const prompt = PromptView.of(view, api);
  const first = prompt?.opening ?? prompt?.elements[0];
  if (first === undefined) return [];
  const at = view.bytes.indexOf(BILLING_LINE, first.start);
  if (at < 0 || at >= first.end) return [];
  const start = at + BILLING_LINE.length;
  let end = start;
  while (view.bytes[end] !== QUOTE && view.bytes[end] !== BACKSLASH) end++;
  return [{ start, end, pieces: [BILLING_VALUE] }];
}

/** Takes marks out of messages and tools. Where a client marks parts, one text part and a string are the same. */
function marksIn(view: BodyView): readonly ByteEdit[] {
  const edits: ByteEdit[] = [];
  for (const field of ['system', 'messages', 'tools']) {
    const span = view.value(field);
    if (span !== undefined) addMarks(view.scan, span, edits);
  }
  return edits;
}

function addMarks(scan: JsonScanner, span: ByteSpan, edits: ByteEdit[]): void {
  if (scan.isArray(span)) for (const element of scan.elements(span.start)) addMarks(scan, element, edits);
  if (!scan.isObject(span)) return;
  const members = scan.members(span.start);
  for (const edit of withoutMembers(members, MARKS)) edits.push(edit);
  for (const { key, valueStart, end } of members) {
    if (!MARKED_MEMBERS.has(key)) continue;
    const value = { start: valueStart, end };
    const text = key === 'content' ? onlyText(scan, value) : undefined;
    if (text === undefined) addMarks(scan, value, edits);
    else edits.push({ ...value, pieces: [Buffer.from(scan.bytes.subarray(text.start, text.end))] });
  }
}

/** The text of a content of one text part that has nothing but a mark. */
function onlyText(scan: JsonScanner, content: ByteSpan): ByteSpan | undefined {
  const [part, second] = scan.isArray(content) ? scan.elements(content.start, 2) : [];
  if (part === undefined || second !== undefined || !scan.isObject(part)) return undefined;
  const members = scan.members(part.start).filter(({ key }) => key !== MARK);
  const isText = members.some(
    (member) => member.key === 'type' && scan.string({ start: member.valueStart, end: member.end }) === 'text',
  );
  const text = members.find(({ key }) => key === 'text');
  return isText && members.length === 2 && text !== undefined ? { start: text.valueStart, end: text.end } : undefined;
}
