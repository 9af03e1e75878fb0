import { Template } from '@huggingface/jinja';
import { WarmpathError } from '@warmpath/core';
import type { Vocabulary } from '../native/vocabulary.js';
import { type PromptSegment, SpecialTextGuard, specialTextPattern } from './special-text.js';

/** One message of a conversation, its content flattened to text. */
export interface ChatMessage {
  readonly role: 'system' | 'developer' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly name?: string | undefined;
}

/**
 * A model's own chat template: the Jinja template of its metadata, run by `@huggingface/jinja`.
 *
 * The prompt depends on the messages alone. Templates that print today's date get no clock (`strftime_now` is
 * undefined, for which such templates have a fixed fallback): a date in front of the documents would empty the prefix
 * cache at midnight.
 */
export class ChatTemplate {
  readonly #template: Template | undefined;
  readonly #vocabulary: Vocabulary;
  readonly #specialTexts: RegExp;

  /** @param source The template, or `undefined` for a model without one; then every {@link tokenize} is refused. */
  constructor(source: string | undefined, vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    this.#specialTexts = specialTextPattern(vocabulary.specialTexts);
    this.#template = source === undefined ? undefined : parseTemplate(source);
  }

  /**
   * @param addGenerationPrompt End with the opening of the assistant's answer.
   * @returns The prompt's tokens, BOS included where the model wants one.
   * @throws WARMPATH_CHAT_TEMPLATE when there is no template, or when it refuses the messages.
   */
  tokenize(messages: readonly ChatMessage[], addGenerationPrompt: boolean): number[] {
    const tokens: number[] = [];
    for (const { text, parseSpecial } of this.#render(messages, addGenerationPrompt)) {
      for (const token of this.#vocabulary.tokenize(text, { parseSpecial })) {
        tokens.push(token);
      }
    }
    const bos = this.#vocabulary.leadingBos;
    // Some templates write the BOS themselves.
    return bos === undefined || tokens[0] === bos ? tokens : [bos, ...tokens];
  }

  #render(messages: readonly ChatMessage[], addGenerationPrompt: boolean): PromptSegment[] {
    if (this.#template === undefined) {
      throw new WarmpathError('WARMPATH_CHAT_TEMPLATE', {
        detail: 'This model has no chat template; use /v1/completions.',
      });
    }
    const texts = messages.flatMap((message) => [message.content, message.name ?? '']);
    const guard = SpecialTextGuard.create(this.#specialTexts, texts);
    if (guard === undefined) {
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', {
        path: 'messages',
        detail: 'The messages hold all of the Unicode noncharacters U+FDD0 to U+FDEF.',
      });
    }
    const guarded = messages.map(({ role, content, name }) => ({
      role,
      content: guard.guard(content),
      ...(name !== undefined && { name: guard.guard(name) }),
    }));
    return guard.split(
      render(this.#template, {
        messages: guarded,
        add_generation_prompt: addGenerationPrompt,
        bos_token: this.#vocabulary.bosText,
        eos_token: this.#vocabulary.eosText,
      }),
    );
  }
}

/**
 * Takes the clock away: the library declares `strftime_now` itself and refuses a second declaration from outside.
 * The newline is the one that Jinja's `trim_blocks` drops after a block.
 */
const WITHOUT_CLOCK = '{% set strftime_now = undefined %}\n';

function parseTemplate(source: string): Template {
  try {
    return new Template(WITHOUT_CLOCK + source);
  } catch (cause) {
    throw new WarmpathError('WARMPATH_MODEL_FILE', {
      path: 'model',
      detail: 'The chat template in this model file cannot be parsed.',
      cause,
    });
  }
}

function render(template: Template, variables: Record<string, unknown>): string {
  try {
    return template.render(variables);
  } catch (cause) {
    // What `raise_exception` says comes from the template and not from the messages.
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new WarmpathError('WARMPATH_CHAT_TEMPLATE', {
      path: 'messages',
      detail: `The model's chat template refused these messages: ${reason}`,
      cause,
    });
  }
}
