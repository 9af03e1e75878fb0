import { blockDocuments, estimateTokens } from '@warmpath/core';
import {
  type BlockFormat,
  BREAK_CAUSES,
  type FixedReason,
  findPrefixBreak,
  outlinePrompt,
  type PrefixBreak,
  type PromptPiece,
} from '@warmpath/core/internal';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../../apis/prompt-apis.js';
import type { ApiName, PromptApi } from '../../apis/prompt-view.js';
import { pathName, type RequestText } from '../../apis/request-texts.js';
import { parseObject } from '../../json/json-body.js';
import { isObject, type JsonObject } from '../../json/json-scanner.js';
import { promptPieces } from '../../observe/prompt-pieces.js';
import { isReported } from '../../prompt/arrange-in-place.js';
import { formedBlocks, recogniseRequest } from '../../prompt/find-documents.js';
import { InPlacePrompts, type InPlaceSwitches, type PlacedPrompt } from '../../prompt/in-place-prompts.js';
import type { DecidedSlot, PlacedBlock, RecognisedRequest } from '../../shapes/shapes.js';
import { apiOfBody, readRecorded } from './recorded-request.js';

const APIS: Readonly<Record<ApiName, PromptApi>> = {
  chat: chatApi,
  completions: completionsApi,
  messages: messagesApi,
  responses: responsesApi,
};

/** Characters shown on either side of a difference. */
const EXCERPT = 32;
/** Words that stand before documents in many prompts. */
const SPEAKS_OF_CONTEXT =
  /<context>|context information is below|following (?:pieces of )?(?:retrieved )?(?:context|documents|sources)/i;
const ADVICE =
  'The prompt speaks of context, but nothing shows where a document ends. Put each document in its own tag, or put <warmpath-documents> around the documents, or let the gateway learn the prompt (`warmpath prompts`).';
/** Why cited documents are not listed. */
const CITED = 'Answers cite the documents of this request by number (`citations`). The gateway does not change them.';

export interface ExplainOptions {
  /** Default: by the path in the record, else by the members of the body. */
  readonly api?: ApiName;
  /** How documents may be ordered. Default: core's. */
  readonly arrange?: InPlaceSwitches;
  /** The body of a request that was served before. */
  readonly after?: string;
  /** Whether repeated parts of documents become references. Default: `warmpath.blocks` of the body, else false. */
  readonly blocks?: boolean;
}

/** Documents that stand side by side in a prompt. */
export interface ExplainedBlock {
  /** For instance `messages[1].content`. */
  readonly place: string;
  readonly format: BlockFormat;
  readonly marked: boolean;
  readonly labels: DecidedSlot['labels'];
  readonly fixed: FixedReason | null;
  readonly documents: readonly { readonly id: string; readonly title: string | null; readonly tokens: number }[];
  readonly decided: PlacedBlock['decided'];
  /** `order[place]` is the rank of the document that would stand there. */
  readonly order: readonly number[];
  /** Documents that stand farther up, whole or in part: the reference instead, and the estimated tokens it saves. */
  readonly references: readonly {
    readonly rank: number;
    readonly partly: boolean;
    readonly hint: string;
    readonly savedTokens: number;
  }[];
}

/** A prefix break, with its remedy and the text around it. */
export interface ExplainedBreak extends PrefixBreak {
  readonly remedy: string;
  /** Text around the difference, in the earlier prompt and in this one. */
  readonly before: string;
  readonly now: string;
}

/** What the gateway finds in a request, and what it would do. */
export interface Explanation {
  readonly object: 'explanation';
  readonly api: ApiName;
  readonly model: string;
  /** Estimated. */
  readonly promptTokens: number;
  /** Documents in the field `documents`. */
  readonly givenDocuments: number;
  readonly blocks: readonly ExplainedBlock[];
  /** Tokens that each place costs by which a document moves. */
  readonly shiftPrice: number;
  /** Estimated tokens that references would save. */
  readonly deduplicatedTokens: number;
  /** Why nothing may move, and what helps. `null`: documents were found, or the prompt speaks of none. */
  readonly advice: string | null;
  /** Compared with the earlier request; `null` without one. */
  readonly prefix: {
    /** Tokens of the beginning that both share as the client wrote them. */
    readonly sharedTokens: number;
    /** The same with documents ordered where they stand, in both. */
    readonly arrangedSharedTokens: number;
    /** As the client wrote them; `null` if this request continues the earlier one. */
    readonly break: ExplainedBreak | null;
  } | null;
}

/**
 * Explains a request: which documents are found, which would move, what that saves behind an earlier request, and where
 * the two prompts differ. A request is its body, or a record of it (`readRecorded`). Keeps nothing. O(both bodies).
 *
 * @throws WarmpathError `WARMPATH_INVALID_JSON`
 */
export function explainRequest(given: string, options: ExplainOptions): Explanation {
  const recorded = readRecorded(given);
  const { body } = recorded;
  const after = options.after === undefined ? undefined : readRecorded(options.after).body;
  const api = APIS[options.api ?? recorded.api ?? apiOfBody(recorded.object)];
  const prompts = new InPlacePrompts(options.arrange);
  const earlier = after === undefined ? undefined : readPrompt(after, api, options);
  const servedBefore = earlier && inPlace(earlier, prompts);
  const now = readPrompt(body, api, options);
  const served = inPlace(now, prompts);
  const blocks = served.blocks.filter(isReported);
  const { documents } = now.object;
  return {
    object: 'explanation',
    api: api.name,
    model: typeof now.object['model'] === 'string' ? now.object['model'] : '',
    promptTokens: tokensOf(now),
    givenDocuments: Array.isArray(documents) ? documents.length : 0,
    blocks: blocks.map((placed) => explainBlock(now, placed)),
    shiftPrice: options.arrange?.shiftPrice ?? 0,
    deduplicatedTokens: sumOf(blocks.flatMap(({ references }) => references.map((each) => each.savedTokens))),
    advice: blocks.length === 0 ? adviceFor(now) : null,
    prefix: earlier === undefined ? null : explainPrefix(earlier, now, [servedBefore!.body, served.body]),
  };
}

interface ReadPrompt {
  readonly body: string;
  readonly object: JsonObject;
  readonly api: PromptApi;
  readonly deduplicate: boolean;
  readonly blocks: boolean;
  readonly labels: 'kept' | 'mapped';
  /** Whether answers cite documents by number, so that no document may move. */
  readonly isCited: boolean;
  readonly pieces: readonly PromptPiece[];
  readonly recognised: RecognisedRequest | undefined;
}

function readPrompt(body: string, api: PromptApi, { blocks: asked }: ExplainOptions): ReadPrompt {
  const object = parseObject(body);
  const messages = api.messages(object);
  const texts = messages.flatMap((message) => message.texts);
  const own = object['warmpath'];
  const said: JsonObject = isObject(own) ? own : {};
  const parts = asked ?? said['blocks'] === true;
  const isGiven = Array.isArray(object['documents']) && object['documents'].length > 0;
  const find = (given: readonly RequestText[]) => formedBlocks(given, { refersToParts: parts });
  // A request that names its documents is not searched for others.
  const recognised = isGiven ? undefined : recogniseRequest(Buffer.from(body), api, { find, markerKey: '' });
  return {
    body,
    object,
    api,
    deduplicate: said['deduplicate'] !== false,
    blocks: parts,
    labels: said['labels'] === 'mapped' ? 'mapped' : 'kept',
    isCited: texts.some(({ kind }) => kind === 'verbatim'),
    pieces: piecesOf(body, object, api),
    recognised,
  };
}

function piecesOf(body: string, object: JsonObject, api: PromptApi): readonly PromptPiece[] {
  const messages = api.messages(object);
  const texts = messages.flatMap((message) => message.texts);
  return promptPieces(body, object, { api, messages, blocks: formedBlocks(texts, { refersToParts: false }) });
}

/** A prompt as the gateway would send it. */
function inPlace({ body, recognised, ...options }: ReadPrompt, prompts: InPlacePrompts): PlacedPrompt {
  return recognised === undefined ? { body, blocks: [] } : prompts.place(recognised, options);
}

function explainBlock({ recognised }: ReadPrompt, { block, decided, sent, references }: PlacedBlock): ExplainedBlock {
  const { text, place } = recognised!.texts[block.text]!;
  return {
    place: pathName(place),
    format: block.format,
    marked: block.marked,
    labels: sent.labels,
    fixed: block.fixed ?? null,
    documents: blockDocuments(text, block).map(({ title, tokens }, rank) => ({
      id: block.documents[rank]!.id ?? `#${rank + 1}`,
      title: title ?? null,
      tokens,
    })),
    decided,
    order: sent.order,
    references: references.map(({ rank, partly, written, savedTokens }) => ({
      rank,
      partly,
      hint: written,
      savedTokens,
    })),
  };
}

function explainPrefix(
  before: ReadPrompt,
  now: ReadPrompt,
  [sentBefore, sent]: readonly [string, string],
): NonNullable<Explanation['prefix']> {
  const found = findPrefixBreak(outlinePrompt(before.pieces, { keepText: true }), now.pieces);
  const arranged = findPrefixBreak(
    outlinePrompt(piecesOf(sentBefore, parseObject(sentBefore), before.api), { keepText: true }),
    piecesOf(sent, parseObject(sent), now.api),
  );
  return {
    sharedTokens: found?.sharedTokens ?? tokensOf(before),
    arrangedSharedTokens: arranged?.sharedTokens ?? tokensOf(before),
    break: found === undefined ? null : explainBreak(before.pieces, now.pieces, found),
  };
}

/** A break with its remedy and what stands around it. */
function explainBreak(before: readonly PromptPiece[], now: readonly PromptPiece[], found: PrefixBreak): ExplainedBreak {
  const at = now.findIndex((piece, i) => piece.kind !== before[i]?.kind || piece.text !== before[i]?.text);
  const around = (piece: PromptPiece | undefined) =>
    piece?.text.slice(Math.max(0, found.offset - EXCERPT), found.offset + EXCERPT) ?? '';
  const earlier = before[at < 0 ? now.length : at];
  return {
    ...found,
    remedy: BREAK_CAUSES[found.cause],
    before: around(earlier),
    now: around(at < 0 ? undefined : now[at]),
  };
}

function tokensOf({ pieces }: ReadPrompt): number {
  return pieces.reduce((sum, { text }) => sum + (text === '' ? 0 : estimateTokens(text)), 0);
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function adviceFor({ isCited, pieces }: ReadPrompt): string | null {
  if (isCited) return CITED;
  const speaks = pieces.some(
    ({ kind, text }) => (kind === 'system' || kind === 'user') && SPEAKS_OF_CONTEXT.test(text),
  );
  return speaks ? ADVICE : null;
}
