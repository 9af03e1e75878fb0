/** The hint that states the retrieval order. Short, because hints are never cached. */
export function orderHint(names: string): string {
  return `In order of relevance: ${names}.`;
}

/** The hint that states that the prompt has these documents, or this text, farther up. */
export function locationHint(names: string): string {
  return `Given earlier in this conversation: ${names}.`;
}

export const TEMPLATE_NAMES = ['xml', 'brackets', 'plain'] as const;
/** Format of one document. */
export type TemplateName = (typeof TEMPLATE_NAMES)[number];

export const LAYOUT_NAMES = ['question', 'message', 'system'] as const;
/**
 * Place of the documents: before the question in the last user message (`question`, the default), in an own user
 * message before it (`message`), or at the end of the system message (`system`).
 */
export type LayoutName = (typeof LAYOUT_NAMES)[number];

export interface RenderOptions {
  readonly template: TemplateName;
  readonly layout: LayoutName;
}

/** A chat message of OpenAI's API. Unknown fields are kept. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly ContentPart[] | null;
  readonly [field: string]: unknown;
}

export interface ContentPart {
  readonly type: string;
  readonly text?: string;
  readonly [field: string]: unknown;
}

/** One addition to the client's messages. Plain data that survives JSON. Nothing of the client is ever removed. */
export interface ChatEdit {
  /** Index of the client's message. */
  readonly at: number;
  /** Whether it is added to the text of that message, or as an own message next to it. */
  readonly add: 'text-before' | 'text-after' | 'message-before' | 'message-after';
  readonly text: string;
  /** Role of an added message. */
  readonly role?: string;
}
