import { type Arrangement, type ChatMessage, estimateTokens, type LayoutName } from '@warmpath/core';
import type { ExtractedRequest } from '../intake/extract.js';

/** Tokens of the whole prompt, estimated: what stands before the documents, the documents, the hint, and what comes after. */
export function estimatePrompt({ prompt }: ExtractedRequest, arrangement: Arrangement, layout: LayoutName): number {
  let tokens = arrangement.preamble?.tokens ?? 0;
  for (const document of arrangement.documents) tokens += document.tokens;
  if (arrangement.hint !== undefined) tokens += estimateTokens(arrangement.hint.labels.join(', '));
  if (prompt?.kind === 'completion') return tokens + estimateTokens(prompt.prompt);
  for (const { content } of messagesAfterDocuments(prompt?.messages ?? [], layout)) {
    if (typeof content === 'string') tokens += estimateTokens(content);
    // Parts are the engine's to judge; they may be anything.
    else for (const part of content ?? []) if (typeof part?.text === 'string') tokens += estimateTokens(part.text);
  }
  return tokens;
}

function messagesAfterDocuments(messages: readonly ChatMessage[], layout: LayoutName): readonly ChatMessage[] {
  if (layout !== 'system') return messages.slice(messages.findLastIndex(({ role }) => role === 'user'));
  return messages.slice(messages.findIndex(({ role }) => role === 'system' || role === 'developer') + 1);
}
