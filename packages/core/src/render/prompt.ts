/** What the hints say, each on a line of its own; `{documents}` stands for the names of the documents in question. */
export interface HintWording {
  /** States the retrieval order of all documents. */
  readonly order: string;
  /** Says of the documents that are not repeated that the conversation holds them. */
  readonly location: string;
}

/** Place of the documents' names in a hint. */
export const HINT_PLACE = '{documents}';

/** English, and short: nothing of a hint is ever cached. */
export const DEFAULT_HINT_WORDING: HintWording = {
  order: `In order of relevance: ${HINT_PLACE}.`,
  location: `Given earlier in this conversation: ${HINT_PLACE}.`,
};

export const TEMPLATE_NAMES = ['xml', 'brackets', 'plain'] as const;
/** How one document is written. */
export type TemplateName = (typeof TEMPLATE_NAMES)[number];

export const LAYOUT_NAMES = ['question', 'message', 'system'] as const;
/**
 * Where the documents stand: before the question in the last user message (`question`, the default), in a user message
 * of their own before it (`message`), or at the end of the system message (`system`).
 */
export type LayoutName = (typeof LAYOUT_NAMES)[number];

export interface RenderOptions {
  readonly template: TemplateName;
  readonly layout: LayoutName;
  /** What the hints say. Default `DEFAULT_HINT_WORDING`. */
  readonly wording?: HintWording;
}

/** A chat message as OpenAI's API defines it; fields that Warmpath does not know stay as they are. */
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

/**
 * One thing that rendering adds to the client's messages. Plain data that survives JSON; nothing of the client's is
 * ever taken away.
 */
export interface ChatEdit {
  /** Position of the client's message. */
  readonly at: number;
  /** Added to the text of that message, or as a message of its own beside it. */
  readonly add: 'text-before' | 'text-after' | 'message-before' | 'message-after';
  readonly text: string;
  /** Role of an added message. */
  readonly role?: string;
}
