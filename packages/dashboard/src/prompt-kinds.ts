/** What `GET /v1/prompts` answers. */
export interface PromptKindList {
  readonly object: 'list';
  readonly data: readonly ListedPromptKind[];
  /** Whether the caller may allow and refuse kinds. */
  readonly mayChange: boolean;
  /** Whether consents are stored outside of the process. */
  readonly survivesRestart: boolean;
}

/** A program's prompt, and what was decided about it. */
export interface ListedPromptKind {
  readonly object: 'prompt_kind';
  readonly id: string;
  readonly tenant: string;
  readonly role: string;
  readonly parts: readonly PromptKindPart[];
  readonly prompts: number;
  /** Prompts with two documents or more that can be told apart. */
  readonly withDocuments: number;
  readonly notices: readonly PromptKindNotice[];
  readonly state: 'asking' | 'allowed' | 'automatic' | 'refused';
  readonly labels: 'kept' | 'mapped';
  /** Tokens, and share of the prompt, that would be cached more; `null` before they are known. */
  readonly gain: ExpectedGain | null;
  /** The same with mapped labels. */
  readonly gainIfMapped: ExpectedGain | null;
}

interface ExpectedGain {
  readonly tokens: number;
  readonly share: number;
}

export type PromptKindPart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'documents' }
  | { readonly kind: 'changing' };

interface PromptKindNotice {
  readonly name: string;
  /** Whether the kind gains nothing as long as this is so. */
  readonly preventsGain: boolean;
  readonly message: string;
}
