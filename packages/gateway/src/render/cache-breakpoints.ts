import type { Arrangement, ChatMessage, ContentPart, Document } from '@warmpath/core';
import type { ExtractedRequest } from '../intake/extract.js';

/** Breakpoints that Anthropic's API takes in one request; with one more it refuses the request. */
const MAX_BREAKPOINTS = 4;

/** Where a client's own breakpoints can stand. */
const MARKED_FIELDS = ['tools', 'system', 'messages'];
const MARK = /"cache_control"\s*:\s*\{/g;

/** How many breakpoints may be added to those that the client set itself. O(body). */
export function roomForBreakpoints({ rawValue }: Pick<ExtractedRequest, 'rawValue'>): number {
  const automatic = rawValue('cache_control')?.startsWith('{') ? 1 : 0;
  const set = MARKED_FIELDS.reduce((sum, field) => sum + (rawValue(field)?.match(MARK)?.length ?? 0), automatic);
  return MAX_BREAKPOINTS - set;
}

/**
 * The documents in blocks that each end in a cache breakpoint: those that follow a path served before, and all others. An API
 * that caches up to breakpoints only then finds what requests have in common, and leaves what the next ones may have.
 */
export function cachedBlocks(
  { documents, trace: { cachedDocuments } }: Arrangement,
  room: number,
): readonly (readonly Document[])[] {
  if (room < 2 || cachedDocuments === 0 || cachedDocuments === documents.length) return [documents];
  return [documents.slice(0, cachedDocuments), documents.slice(cachedDocuments)];
}

/** The messages with a breakpoint behind each part that has one of these texts in it. */
export function withBreakpoints(messages: readonly ChatMessage[], texts: readonly string[]): readonly ChatMessage[] {
  const holds = (text: unknown) => typeof text === 'string' && texts.some((each) => text.includes(each));
  const marked = (part: ContentPart) => (holds(part?.text) ? { ...part, cache_control: { type: 'ephemeral' } } : part);
  return messages.map((message) => {
    const { content } = message;
    if (typeof content === 'string') {
      return holds(content) ? { ...message, content: [marked({ type: 'text', text: content })] } : message;
    }
    return content?.some((part) => holds(part?.text)) ? { ...message, content: content.map(marked) } : message;
  });
}

/** The messages with `place` where the text stands, which a turn that is sent again has in full. */
export function withPlace(messages: readonly ChatMessage[], text: string, place: string): readonly ChatMessage[] {
  const put = (within: string) => within.replace(text, () => place);
  return messages.map((message) => {
    const { content } = message;
    if (typeof content === 'string') return content.includes(text) ? { ...message, content: put(content) } : message;
    if (!content?.some((part) => part?.text?.includes?.(text))) return message;
    const parts = content.map((part) => (part?.text?.includes?.(text) ? { ...part, text: put(part.text) } : part));
    return { ...message, content: parts };
  });
}
