import type { Arrangement } from '../arrangement.js';
import type { Preamble } from '../ordering/policy.js';

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

/** The signatures that `render/` implements. */
export interface PromptRenderer {
  /** Everything of `messages` that stands before the documents under this layout, as a key and a token count. */
  chatPreamble(messages: readonly ChatMessage[], scope: string, options: RenderOptions): Preamble;
  /** Messages with documents and hint in place. Never mutates its input; the same input gives the same bytes. */
  renderChat(
    messages: readonly ChatMessage[],
    arrangement: Arrangement,
    options: RenderOptions,
  ): readonly ChatMessage[];
  /** `documents + hint + prompt`. */
  renderCompletion(prompt: string, arrangement: Arrangement, options: RenderOptions): string;
}
