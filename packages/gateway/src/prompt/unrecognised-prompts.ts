import { recognise } from '@warmpath/core';
import { type FormatName, fingerprint, type RecognitionMode, suggestTemplate } from '@warmpath/core/internal';
import type { PromptApi } from '../apis/prompt-api.js';
import { pathName } from '../apis/request-texts.js';
import { isReadable } from '../json/json-body.js';
import type { JsonObject } from '../json/json-scanner.js';

/** Why documents that stand in prompts stay as they are, without a word of these. */
export interface RecognitionNotice {
  /** The API of the prompt. */
  readonly api: PromptApi['name'];
  /** Where the documents stand, for instance `messages[0].content`. */
  readonly place: string;
  readonly documents: number;
  /** `off`: they would be found, and are not looked for. `ambiguous`: nothing but white space or rules parts them. */
  readonly reason: 'off' | 'ambiguous';
  /** How they are written; `undefined` where that is no form that is known. */
  readonly format: FormatName | undefined;
}

/** A notice in words, with what to set. */
export function describeNotice({ api, place, documents, reason, format }: RecognitionNotice): string {
  const what = `Prompts at the API "${api}" hold ${documents} documents (${place})`;
  return reason === 'off'
    ? `${what}, written as ${format}, and stay as they are: set \`recognise.mode: conservative\` to have them ordered; \`warmpath explain\` shows what it does.`
    : `${what} that nothing but their separator parts, and stay as they are: \`warmpath explain\` prints the \`recognise.templates\` that finds them.`;
}

/** Bytes of a body that is looked at. */
const MOST_BYTES = 131_072;
/** Shapes of prompts that are reported. */
const MOST_SHAPES = 64;
/** Milliseconds between two looks; twice as long after each that tells nothing new, up to the longest. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

/**
 * Looks now and then at a prompt in which nothing was found, and tells once for each shape of prompts that documents
 * stand in it. Remembers digests of at most 64 shapes, and no text.
 */
export class UnrecognisedPrompts {
  readonly #tell: (notice: RecognitionNotice) => void;
  readonly #now: () => number;
  readonly #reported = new Set<string>();
  #nextAt = Number.NEGATIVE_INFINITY;
  #pauseMs = FIRST_PAUSE_MS;

  /** @param now The monotonic clock, in milliseconds. */
  constructor(tell: (notice: RecognitionNotice) => void, now: () => number) {
    this.#tell = tell;
    this.#now = now;
  }

  /** Looks at a prompt, if it is time for that. O(body), of at most 128 KiB, once a second. */
  look(body: Buffer, api: PromptApi, mode: RecognitionMode): void {
    const now = this.#now();
    if (now < this.#nextAt || this.#reported.size >= MOST_SHAPES) return;
    const isNew = body.length <= MOST_BYTES && isReadable(body) && this.#tellsOf(body, api, mode);
    this.#pauseMs = isNew ? FIRST_PAUSE_MS : Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
    this.#nextAt = now + this.#pauseMs;
  }

  #tellsOf(body: Buffer, api: PromptApi, mode: RecognitionMode): boolean {
    const found = findNotice(body, api, mode);
    if (found === undefined || this.#reported.has(found.shape)) return false;
    this.#reported.add(found.shape);
    this.#tell(found.notice);
    return true;
  }
}

/** What could be said of a prompt, and what prompts of the same make have in common. */
interface FoundNotice {
  readonly notice: RecognitionNotice;
  readonly shape: string;
}

function findNotice(body: Buffer, api: PromptApi, mode: RecognitionMode): FoundNotice | undefined {
  const texts = api.messages(JSON.parse(body.toString('utf8')) as JsonObject).flatMap((message) => message.texts);
  const [block] = mode === 'conservative' ? [] : recognise(texts, { mode: 'conservative' });
  if (block !== undefined) {
    const place = pathName(texts[block.text]!.place);
    const { format } = block;
    const notice = { api: api.name, place, documents: block.documents.length, reason: 'off', format } as const;
    // `result` is none that `recognise` answers with.
    return { notice: { ...notice, format: format as FormatName }, shape: fingerprint([api.name, 'off', format]) };
  }
  const suggested = suggestTemplate(texts);
  if (suggested === undefined) return undefined;
  const { template, documents } = suggested;
  const place = pathName(texts[suggested.text]!.place);
  return {
    notice: { api: api.name, place, documents, reason: 'ambiguous', format: undefined },
    shape: fingerprint([api.name, template.before, template.separator, template.after ?? '']),
  };
}
