import { byteChain, fingerprint } from '@warmpath/core/internal';
import { PromptView } from '../apis/prompt-view.js';
import type { ParsedRequest } from '../intake/parse-request.js';
import { BodyView } from '../json/json-body.js';
import type { Call } from '../shapes/shapes.js';

const HASH_DIGITS = 8;
const HASHES = 16 ** HASH_DIGITS;

/**
 * Whether a prompt belongs to the group that is left as it is, to compare with. All turns of a conversation are in one
 * group: by its name, or else by the first words of its user. Every gateway decides the same. O(body).
 */
export function isHeldOut(call: Call, conversation: ParsedRequest['conversation'], share: number): boolean {
  if (share === 0) return false;
  const { session, user } = conversation ?? {};
  const name = session === undefined ? firstMessage(call) : JSON.stringify([user ?? null, session]);
  return Number.parseInt(fingerprint([call.tenant, name]).slice(0, HASH_DIGITS), 16) < share * HASHES;
}

/** A hash of the first message of the user; of what the request has instead, where it has none. */
function firstMessage({ body, api }: Call): string {
  try {
    const view = new BodyView(body);
    const prompt = PromptView.of(view, api);
    const place = prompt?.elements.findIndex((_, at) => prompt.isText || prompt.roleAt(at) === 'user') ?? -1;
    const first = prompt?.elements[Math.max(0, place)] ?? view.value('prompt');
    return first === undefined ? '' : byteChain(view.bytes, [first])[0]!;
  } catch {
    // What cannot be read is the engine's to refuse.
    return '';
  }
}
