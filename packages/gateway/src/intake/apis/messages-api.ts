import type { ChatMessage, ContentPart } from '@warmpath/core';
import { readMessage } from '../prompt-view.js';
import { contentTexts, isCited, isObject, textRole } from './content-texts.js';
import { ENGINE_PROMPT_FIELDS, type PromptApi } from './prompt-api.js';
import type { JsonObject, JsonPath, RequestMessage, RequestText, TextRole } from './request-texts.js';

/** Anthropic's Messages. */
export const messagesApi = {
  name: 'messages',
  path: '/v1/messages',
  promptFields: ['tools', 'tool_choice', 'thinking', 'output_config', 'output_format', ...ENGINE_PROMPT_FIELDS],
  conversation: {
    opening: 'system',
    messages: 'messages',
    takesText: false,
    hasSystemMessages: false,
    partType: 'text',
    read: (value, place) => readMessage(value, `messages[${place}]`),
    split: { sign: '"tool_result"', type: 'tool_result', halves: splitResults },
  },
  answerLimit: { field: 'max_tokens', least: 1 },
  messages: ({ system, messages }) => {
    const read: RequestMessage[] = [];
    if (system !== undefined && system !== null) {
      read.push({ role: 'system', place: ['system'], texts: contentTexts(system, ['system'], 'system') });
    }
    if (!Array.isArray(messages)) return read;
    for (const [position, message] of messages.entries()) {
      const place = ['messages', position];
      const { role: given, content } = isObject(message) ? message : {};
      const role = textRole(given);
      read.push({ role, place, texts: contentTexts(content, [...place, 'content'], role, blockTexts(role)) });
    }
    return read;
  },
} as const satisfies PromptApi;

/** Texts inside of blocks: results of tools, documents in plain text, search results. */
function blockTexts(role: TextRole) {
  return (block: JsonObject, place: JsonPath): readonly RequestText[] => {
    const { type, content } = block;
    if (type === 'tool_result') return contentTexts(content, [...place, 'content'], 'tool', blockTexts('tool'));
    const texts = documentTexts(block, place, role);
    return isCited(block) ? texts.map((text) => ({ ...text, kind: 'verbatim' as const })) : texts;
  };
}

function documentTexts({ type, content, source }: JsonObject, place: JsonPath, role: TextRole): readonly RequestText[] {
  if (type === 'search_result') return contentTexts(content, [...place, 'content'], role);
  if (type !== 'document' || !isObject(source)) return [];
  if (source['type'] === 'text') return contentTexts(source['data'], [...place, 'source', 'data'], role);
  return source['type'] === 'content' ? contentTexts(source['content'], [...place, 'source', 'content'], role) : [];
}

/**
 * Anthropic puts results of tools into a user's message, in front of the user's own words, and refuses any other order.
 * For rendering the two stand apart, as they do in OpenAI's chat: documents belong before the user's words, behind the
 * results.
 */
function splitResults(message: ChatMessage): readonly ChatMessage[] {
  const end = resultsEnd(message);
  if (end === 0) return [message];
  const blocks = message.content as readonly ContentPart[];
  const results = { role: 'tool', content: blocks.slice(0, end).flatMap(resultParts) };
  return end === blocks.length ? [results] : [results, { ...message, content: blocks.slice(end) }];
}

/** How many blocks of a user's message there are up to its last result of a tool. */
function resultsEnd({ role, content }: ChatMessage): number {
  if (role !== 'user' || !Array.isArray(content)) return 0;
  return (content as readonly ContentPart[]).findLastIndex((block) => block?.type === 'tool_result') + 1;
}

/** A result as parts whose text can be counted; only ever looked at, never written. */
function resultParts(block: ContentPart): readonly ContentPart[] {
  const { content, ...rest } = block;
  if (typeof content === 'string') return [{ ...rest, text: content }];
  return Array.isArray(content) ? [rest, ...(content as readonly ContentPart[])] : [block];
}
