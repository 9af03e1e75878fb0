import type { Arrangement } from '@warmpath/core';
import { estimateTokensOfBytes, type KnowledgeTreeView } from '@warmpath/core/internal';
import type { ApiName } from '../apis/prompt-api.js';
import { OPENING, type PromptView, type ViewedMessages } from '../apis/prompt-view.js';
import { type BreakpointRule, type Dialect, leastMarked } from '../dialects/dialects.js';
import type { BodyView } from '../json/json-body.js';
import type { ByteSpan } from '../json/json-scanner.js';
import type { BreakpointMarks } from './insert-documents.js';

/** A prompt that gets breakpoints. */
interface MarkedPrompt {
  readonly prompt: PromptView;
  readonly viewed: ViewedMessages;
  readonly arrangement: Arrangement;
  /** Whether it is a turn of a named conversation: its documents are one text with the question. */
  readonly isTurn: boolean;
  /** What was served before. */
  readonly tree: KnowledgeTreeView;
  /** Estimated tokens in front of the messages. */
  readonly tokensBefore: number;
}

/** Where breakpoints go. */
export interface BreakpointPlaces {
  readonly marks: BreakpointMarks;
  /** Documents that end in one, by their places in the prompt. */
  readonly documents: ReadonlySet<number>;
}

/** How requests of an API to such an engine say up to where they are to be cached; `undefined` where they need not. */
export function breakpointRule(
  { breakpoints }: Dialect,
  { api, model }: { readonly api: ApiName; readonly model: string },
): BreakpointRule | undefined {
  if (!breakpoints?.apis.includes(api) || breakpoints.models?.test(model) === false) return undefined;
  return { ...breakpoints, least: leastMarked(breakpoints, model) };
}

/** Breakpoints that may be added to those that the client set itself. O(body), native. */
export function breakpointRoom({ key, most, implicit }: BreakpointRule, body: BodyView): number {
  const set = new RegExp(`"${key}"\\s*:\\s*\\{`, 'g');
  let own = body.raw(key)?.startsWith('{') ? 1 : 0;
  for (const field of ['tools', 'system', 'messages', 'input']) own += body.raw(field)?.match(set)?.length ?? 0;
  if (implicit !== undefined && (body.parse(implicit) as { mode?: unknown } | undefined)?.mode !== 'explicit') own++;
  return most - own;
}

/**
 * Chooses what to mark, at most `room` places: the end of all documents, which the same documents find again; the end
 * of the system prompt, which every request shares; the end of the path that was served before; and other ends on that
 * path from which requests went different ways, by the tokens that they shared. Nothing is marked before the prompt is
 * as long as the engine caches at all. O(documents + system prompt).
 */
export function placeBreakpoints(
  { member, least }: BreakpointRule,
  room: number,
  prompt: MarkedPrompt,
): BreakpointPlaces | undefined {
  const { arrangement } = prompt;
  const ends = endsOf(arrangement);
  const last = ends.length - 1;
  const documents = new Set<number>();
  if (last >= 0 && ends[last]! >= least) documents.add(last);
  const message = documents.size < room ? systemMessage(prompt, least) : undefined;
  let left = room - documents.size - Number(message !== undefined);
  for (const place of prompt.isTurn ? [] : junctions(prompt)) {
    if (left <= 0) break;
    if (documents.has(place) || ends[place]! < least) continue;
    documents.add(place);
    left--;
  }
  if (documents.size === 0 && message === undefined) return undefined;
  return { marks: { member, message }, documents };
}

/** Estimated tokens of the prompt up to the end of each document. */
function endsOf({ preamble, documents }: Arrangement): number[] {
  let end = preamble?.tokens ?? 0;
  return documents.map(({ tokens }) => {
    end += tokens;
    return end;
  });
}

/** The system prompt, if it opens the prompt and is long enough with what stands before it. */
function systemMessage({ prompt, viewed, tokensBefore }: MarkedPrompt, least: number): number | undefined {
  const origin = viewed.origins[0];
  if (origin === undefined) return undefined;
  const span = origin.place === OPENING ? openingOf(prompt) : systemElement(prompt, origin.place);
  if (span === undefined) return undefined;
  const tokens = estimateTokensOfBytes(prompt.body.bytes.subarray(span.start, span.end));
  return tokensBefore + tokens >= least ? 0 : undefined;
}

/** Of OpenAI's Responses, the opening is a text that cannot be marked. */
function openingOf({ members, opening }: PromptView): ByteSpan | undefined {
  return members.opening === 'system' ? opening : undefined;
}

function systemElement(prompt: PromptView, place: number): ByteSpan | undefined {
  const role = prompt.roleAt(place);
  return role === 'system' || role === 'developer' ? prompt.elements[place] : undefined;
}

/** Places behind which requests went different ways, the most worthwhile first: this one's own comes before all. */
function junctions({ arrangement, tree }: MarkedPrompt): number[] {
  const { preamble, documents, trace } = arrangement;
  const before = preamble === undefined ? 0 : (preamble.steps?.length ?? 0) + 1;
  const keys = [...(preamble?.steps ?? []).map(({ key }) => key), ...(preamble === undefined ? [] : [preamble.key])];
  const hits = tree.hitsAlong([...keys, ...documents.map(({ key }) => key)]).slice(before);
  const own = trace.cachedDocuments - 1;
  let tokens = preamble?.tokens ?? 0;
  const worth = hits.map((along, place) => {
    tokens += documents[place]!.tokens;
    return tokens * (along - (hits[place + 1] ?? 0));
  });
  const places = [...hits.keys()].filter((place) => worth[place]! > 0 || place === own);
  return places.sort((a, b) => Number(b === own) - Number(a === own) || worth[b]! - worth[a]! || a - b);
}
