import { estimateTokens } from '@warmpath/core';
import {
  type CacheTerms,
  estimateTokensOfBytes,
  messageChain,
  messageMeaning,
  rewriteResults,
  TenantCache,
  type ToolResult,
} from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-view.js';
import { type TextChange, textEdits } from '../apis/request-texts.js';
import { type ToolCall, toolsOf } from '../apis/tool-results.js';
import type { GatewayConfig, TokenPrice } from '../config/schema.js';
import { type Dialect, leastReused } from '../dialects/dialects.js';
import { applyEdits, BodyView } from '../json/json-body.js';
import { isObject } from '../json/json-scanner.js';

/** Tools that read a file and do nothing else, by the names that coding agents give them. */
const READ_TOOL = /^(?:read|view|open|cat)(?:_?file)?$/i;
/** Tools that run a command, and commands that only read one file, whatever the working directory. */
const SHELL_TOOL = /^(?:bash|shell|shell_command|exec_command|run_command)$/i;
const READ_COMMAND = /^(?:cat|nl -ba|head(?: -n ?\d+)?|tail(?: -n ?\d+)?|sed -n '?[\d,$]+p'?) \/[^\s|;&<>$`*?(){}]+$/;

export interface RewriteCall {
  readonly tenant: string;
  readonly api: PromptApi;
  readonly body: Buffer;
}

/** The body to send, and the estimated tokens that it is shorter. */
export interface RewrittenBody {
  readonly body: Buffer;
  readonly savedTokens: number;
}

/**
 * Shortens results of tools for models whose price says so (`prices.rewriteResults`), and remembers how the results of
 * each prompt went out, by all messages up to theirs. Messages count by their words: the system prompt, marks for
 * caches and ways of writing do not, so a prefix that may be cached is never taken for a lost one. Bounded in bytes,
 * shared fairly among tenants.
 */
export class ResultRewriter {
  readonly #config: Pick<GatewayConfig, 'prices'>;
  readonly #dialects: () => readonly Dialect[];
  /** The texts that were sent for the results of a message, as JSON. */
  readonly #sent: TenantCache<string>;

  constructor(config: Pick<GatewayConfig, 'prices'>, dialects: () => readonly Dialect[], maxBytes: number) {
    this.#config = config;
    this.#dialects = dialects;
    this.#sent = new TenantCache(maxBytes);
  }

  get bytes(): number {
    return this.#sent.bytes;
  }

  /** `undefined` where nothing changes. O(body). */
  rewrite({ tenant, api, body }: RewriteCall): RewrittenBody | undefined {
    const member = api.conversation?.messages;
    const { prices } = this.#config;
    if (member === undefined || !prices.some(({ rewriteResults }) => rewriteResults)) return undefined;
    const view = new BodyView(body);
    const model = view.string('model') ?? '';
    const price = prices.find(({ models }) => models === undefined || models.includes(model));
    const span = view.value(member);
    if (price?.rewriteResults !== true || span === undefined || !view.scan.isArray(span)) return undefined;
    const messages = view.parse(member) as readonly unknown[];
    const tools = toolsOf(api.name, messages, member);
    const links = messageChain(messages.map((message) => (isSystem(message) ? [] : [messageMeaning(message)])));
    const sent = links.map((link) => readSent(this.#sent.get(tenant, link)));
    const isUnknown = isUnknownHistory(messages, sent);
    const sizes = view.scan
      .elements(span.start)
      .map(({ start, end }) => estimateTokensOfBytes(body.subarray(start, end)));
    const calls = new Map(tools.flatMap((each) => each.calls.map((call) => [call.id, call])));
    let tokensBefore = 0;
    const results = tools.flatMap((each, place) => {
      const before = tokensBefore;
      tokensBefore += sizes[place]!;
      return each.results.map((result, at) => ({
        place: result.place,
        message: place,
        text: result.text,
        call: result.call,
        failed: result.failed,
        source: sourceOf(calls.get(result.call)),
        tokensBefore: before,
        sent: sent[place]?.[at] ?? (isUnknown || sent[place] !== undefined ? result.text : undefined),
      }));
    });
    const { texts, savedTokens } = rewriteResults(
      results satisfies readonly ToolResult[],
      this.#terms(price, model),
      estimateTokens,
    );
    this.#remember(tenant, links, results, texts);
    const changes = results.flatMap(({ place, text }, at): TextChange[] =>
      texts[at] === text ? [] : [{ place, text: texts[at]! }],
    );
    return changes.length === 0 ? undefined : { body: applyEdits(body, textEdits(view, changes)), savedTokens };
  }

  /** What holds for every engine. */
  #terms({ input, cached, cacheWrite = input }: TokenPrice, model: string): CacheTerms {
    const dialects = this.#dialects();
    const blocks = dialects.map(({ reuse }) => (reuse.kind === 'prefix' || reuse.kind === 'hosted' ? reuse.unit : 1));
    return {
      blockTokens: Math.max(1, ...blocks),
      minTokens: Math.max(0, ...dialects.map((dialect) => leastReused(dialect, model))),
      computed: Math.max(input, cacheWrite),
      cached,
    };
  }

  #remember(
    tenant: string,
    links: readonly string[],
    results: readonly { readonly message: number; readonly text: string }[],
    texts: readonly string[],
  ): void {
    const byMessage: (string | null)[][] = links.map(() => []);
    for (const [at, { message, text }] of results.entries()) {
      byMessage[message]!.push(texts[at] === text ? null : texts[at]!);
    }
    // The last message first: where memory is short, the first to be forgotten are the last of a history.
    for (let place = links.length - 1; place >= 0; place--) {
      const entry = byMessage[place]!.some((text) => text !== null) ? JSON.stringify(byMessage[place]) : '';
      this.#sent.set(tenant, links[place]!, entry, entry.length);
    }
  }
}

function isSystem(message: unknown): boolean {
  return isObject(message) && (message['role'] === 'system' || message['role'] === 'developer');
}

/**
 * Whether a conversation came from elsewhere: it has turns of the assistant, and not even the first was sent from here.
 * The engine may hold it as its client wrote it.
 */
function isUnknownHistory(messages: readonly unknown[], sent: readonly unknown[]): boolean {
  const starts = messages.flatMap((message, at) =>
    isAssistant(message) && !isAssistant(messages[at - 1]) ? [at] : [],
  );
  return starts.length > 1 && sent[starts[0]!] === undefined;
}

function isAssistant(message: unknown): boolean {
  if (!isObject(message)) return false;
  const { role, type } = message;
  return role === 'assistant' || (role === undefined && typeof type === 'string' && /call$|^reasoning$/.test(type));
}

/** What a call reads; `undefined` for a call that may do more. */
function sourceOf(call: ToolCall | undefined): string | undefined {
  if (call === undefined) return undefined;
  const { name, input } = call;
  if (READ_TOOL.test(name)) return messageMeaning({ name, input });
  if (!SHELL_TOOL.test(name) || !isObject(input)) return undefined;
  const command = input['command'] ?? input['cmd'];
  return typeof command === 'string' && READ_COMMAND.test(command) ? command : undefined;
}

/** The texts of a message that was sent: `undefined` for one that was not, and for a text that went out as it came. */
function readSent(entry: string | undefined): readonly (string | undefined)[] | undefined {
  if (entry === undefined) return undefined;
  if (entry === '') return [];
  return (JSON.parse(entry) as readonly (string | null)[]).map((text) => text ?? undefined);
}
