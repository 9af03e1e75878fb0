import { saysTheSame, TenantCache } from '@warmpath/core/internal';
import type { PromptView } from '../apis/prompt-view.js';
import type { NamedConversation } from '../intake/parse-request.js';
import { applyEdits, type ByteEdit } from '../json/json-body.js';
import { parseJson } from '../json/json-scanner.js';

/** Marks for the engine's cache move from turn to turn, and are sent where the client puts them. */
const MARKS = ['"cache_control"', '"prompt_cache_breakpoint"'];

/**
 * The messages of named conversations in the bytes in which they were first sent. A client that writes an earlier
 * message in another way would break the prefix there. Bounded in bytes, shared fairly among tenants and end users; a
 * message that is forgotten is sent as the client writes it.
 */
export class SentMessages {
  readonly #messages: TenantCache<Buffer>;

  constructor(maxBytes: number) {
    this.#messages = new TenantCache(maxBytes);
  }

  get bytes(): number {
    return this.#messages.bytes;
  }

  /** The body with its messages as they were sent; the very same if they all are. O(body). */
  asSent(prompt: PromptView, tenant: string, { session, client, user }: NamedConversation): Buffer {
    const { bytes } = prompt.body;
    // One text has no place in a list of messages.
    if (prompt.isText) return bytes;
    const edits: ByteEdit[] = [];
    for (const { link, start, end } of prompt.linkedSpans()) {
      const key = JSON.stringify([user ?? null, client, session, link]);
      const own = bytes.subarray(start, end);
      const sent = this.#messages.get(tenant, key);
      if (sent?.equals(own)) continue;
      if (sent !== undefined && isMarked(sent) === isMarked(own) && saysTheSame(parse(sent), parse(own)))
        edits.push({ start, end, pieces: [sent] });
      else this.#messages.set(tenant, key, Buffer.from(own), own.length, user);
    }
    return applyEdits(bytes, edits);
  }
}

function isMarked(message: Buffer): boolean {
  return MARKS.some((mark) => message.includes(mark));
}

/** A system prompt in its own member is a content. */
function parse(message: Buffer): unknown {
  const value = parseJson(message.toString());
  return typeof value === 'string' || Array.isArray(value) ? { role: 'system', content: value } : value;
}
