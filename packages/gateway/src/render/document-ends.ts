import { type ChatMessage, type ContentPart, type Document, renderDocuments, type TemplateName } from '@warmpath/core';

/**
 * Cuts the text of a chat where its documents stand, so that each is a text part of its own and an engine that keeps documents
 * sees where they end. The text as a whole stays the same. Messages without documents stay the very objects they were.
 * O(messages).
 *
 * @param place What stands for the documents, exactly once.
 * @param documents What is to stand for each of them.
 */
export function cutAtDocuments(
  messages: readonly ChatMessage[],
  place: string,
  documents: readonly string[],
): readonly ChatMessage[] {
  return messages.map((message) => {
    const { content } = message;
    if (typeof content === 'string') {
      return content.includes(place) ? { ...message, content: cutText(content, place, documents) } : message;
    }
    if (!Array.isArray(content) || !content.some((part) => holds(part, place))) return message;
    const parts = content.flatMap((part: ContentPart) =>
      holds(part, place) ? cutText(part.text!, place, documents) : [part],
    );
    return { ...message, content: parts };
  });
}

function holds(part: ContentPart, place: string): boolean {
  return part?.type === 'text' && part.text?.includes(place) === true;
}

function cutText(text: string, place: string, documents: readonly string[]): ContentPart[] {
  const at = text.indexOf(place);
  const pieces = [text.slice(0, at), ...documents, text.slice(at + place.length)];
  return pieces.filter((piece) => piece !== '').map((piece) => ({ type: 'text', text: piece }));
}

/** Places in a completion's prompt, in UTF-16 code units, at which the documents in front of it end. O(length). */
export function documentEnds(documents: readonly Document[], template: TemplateName): readonly number[] {
  let end = 0;
  return documents.map((document) => {
    end += renderDocuments([document], template).length;
    return end;
  });
}
