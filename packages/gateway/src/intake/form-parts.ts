import { WarmpathError } from '@warmpath/core';

/** A part of a form (RFC 7578). */
export interface FormPart {
  readonly name: string;
  /** Undefined for a field that is no file. */
  readonly fileName: string | undefined;
  /** Its `content-type`; empty where it has none. */
  readonly type: string;
  readonly bytes: Buffer;
}

export const FORM_TYPE = 'multipart/form-data';

const BOUNDARY = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i;
const HEADER = /^([\w-]+)[ \t]*:[ \t]*(.*)$/gm;
const PARAMETER = /;\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/g;
const MAX_HEADER_BYTES = 16_384;
/** Encodings of a part that leave its bytes as they are. */
const PLAIN = new Set(['', '7bit', '8bit', 'binary']);

/**
 * The parts of a form, without a copy of their bytes.
 * @throws WARMPATH_INVALID_REQUEST where the body is no form, or has more than `most` parts.
 */
export function formParts(body: Buffer, contentType: string, most: number): FormPart[] {
  const [, quoted, plain] = BOUNDARY.exec(contentType) ?? [];
  const boundary = quoted ?? plain;
  if (boundary === undefined) throw malformed('its content-type has no boundary');
  const parts: FormPart[] = [];
  let at = delimiterAt(body, boundary, 0);
  for (;;) {
    if (at === undefined) throw malformed('it does not end with its boundary');
    if (at.isLast) return parts;
    if (parts.length === most) throw malformed(`it has more than ${most} parts`);
    const headersEnd = body.indexOf('\r\n\r\n', at.end - 2);
    const next = headersEnd < 0 ? undefined : delimiterAt(body, boundary, headersEnd + 2);
    if (next === undefined || headersEnd - at.end > MAX_HEADER_BYTES)
      throw malformed(`part ${parts.length} has no end`);
    const headers = body.toString('utf8', at.end, Math.max(at.end, headersEnd));
    parts.push(readPart(headers, body.subarray(headersEnd + 4, next.start)));
    at = next;
  }
}

/** The next line of a body that is a boundary: where the content before it ends, and where the next part begins. */
function delimiterAt(body: Buffer, boundary: string, from: number) {
  const line = `--${boundary}`;
  for (let at = body.indexOf(line, from); at >= 0; at = body.indexOf(line, at + 1)) {
    const isAtStart = at === 0 || body.toString('latin1', at - 2, at) === '\r\n';
    const end = at + Buffer.byteLength(line);
    const [, last, space] = /^(--)?([ \t]*)(?:\r\n|$)/.exec(body.toString('latin1', end, end + 80)) ?? [];
    if (!isAtStart || space === undefined) continue;
    return { start: Math.max(from, at - 2), end: end + space.length + 2, isLast: last !== undefined };
  }
  return undefined;
}

function readPart(text: string, bytes: Buffer): FormPart {
  const headers = new Map<string, string>();
  for (const [, name, value] of text.matchAll(HEADER)) headers.set(name!.toLowerCase(), value!.trim());
  const encoding = headers.get('content-transfer-encoding') ?? '';
  if (!PLAIN.has(encoding.toLowerCase())) throw malformed(`a part is encoded as ${encoding.slice(0, 100)}`);
  const parameters = new Map<string, string>();
  for (const [, name, quoted, plain] of (headers.get('content-disposition') ?? '').matchAll(PARAMETER)) {
    parameters.set(name!.toLowerCase(), quoted === undefined ? plain! : unquoted(quoted));
  }
  const name = parameters.get('name');
  if (name === undefined) throw malformed('a part has no name');
  const extended = /^utf-8''(.*)$/i.exec(parameters.get('filename*') ?? '')?.[1];
  const fileName = (extended === undefined ? undefined : decoded(extended)) ?? parameters.get('filename');
  return { name, fileName, type: headers.get('content-type') ?? '', bytes };
}

/** Programs write a quote as `\"`, browsers as `%22`. */
function unquoted(text: string): string {
  return text.replace(/\\(["\\])/g, '$1').replaceAll('%22', '"');
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

function malformed(reason: string): WarmpathError {
  return new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'body', detail: `The form is malformed: ${reason}.` });
}
