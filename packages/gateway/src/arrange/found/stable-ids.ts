import { createHmac, randomBytes } from 'node:crypto';

/**
 * What clients put around text from outside, with an id that nobody can foresee: whoever wrote the text cannot close
 * the marker.
 */
const NAME = 'EXTERNAL_UNTRUSTED_CONTENT';
const OPEN = new RegExp(`<<<${NAME} id="([\\w-]{4,64})">>>`, 'g');
/** Hexadecimal digits of an id. */
const ID_LENGTH = 16;

/** Known to this process alone, so that an id can still not be foreseen. */
const SECRET = randomBytes(32);

/** Whether a body may hold such markers. */
export function hasExternalMarkers(body: Buffer): boolean {
  return body.includes(NAME);
}

/**
 * The text with ids of external-content markers that depend on what stands between them: the same content gets the same
 * id in every request, where the client drew a new one each time and broke the prefix there. A marker that is not
 * closed by its own id stays. O(text).
 */
export function withStableIds(text: string): string {
  const parts: string[] = [];
  let copied = 0;
  OPEN.lastIndex = 0;
  for (let match = OPEN.exec(text); match !== null; match = OPEN.exec(text)) {
    const closing = `<<<END_${NAME} id="${match[1]}">>>`;
    const next = text.indexOf(`<<<END_${NAME}`, OPEN.lastIndex);
    if (next < 0) break;
    if (!text.startsWith(closing, next)) continue;
    const content = text.slice(OPEN.lastIndex, next);
    const id = createHmac('sha256', SECRET).update(content).digest('hex').slice(0, ID_LENGTH);
    parts.push(text.slice(copied, match.index), `<<<${NAME} id="${id}">>>${content}<<<END_${NAME} id="${id}">>>`);
    copied = next + closing.length;
    OPEN.lastIndex = copied;
  }
  if (copied === 0) return text;
  parts.push(text.slice(copied));
  return parts.join('');
}
