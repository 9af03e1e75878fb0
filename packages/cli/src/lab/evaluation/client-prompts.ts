import { type ChatMessage, type PolicyName, prepareDocuments } from '@warmpath/core';
import { placesMoved, renderDocuments } from '@warmpath/core/internal';
import { InPlacePrompts } from '@warmpath/gateway';
import type { AnsweredTurn, EvaluationQuestion } from '@warmpath/lab';
import { documentsOf, RENDER } from './arranged-prompts.js';
import { type PromptSettings, type PromptSource, plainMessages, type SentPrompt } from './prompt-source.js';

/** How a client that writes its documents into its messages does so, and who changes them on the way. */
export interface ClientSettings extends PromptSettings {
  /** Whether earlier turns keep their documents, or only question and answer. */
  readonly keepsDocuments: boolean;
  /** Policy of a gateway that recognises the documents and places them; `undefined` for none. */
  readonly recognisedBy: PolicyName | undefined;
}

/** Prompts that their client builds whole, documents included, in retrieval order. */
export class ClientPrompts implements PromptSource {
  readonly #settings: ClientSettings;
  readonly #inPlace: InPlacePrompts | undefined;

  constructor(settings: ClientSettings) {
    this.#settings = settings;
    this.#inPlace =
      settings.recognisedBy === undefined ? undefined : new InPlacePrompts({ policy: settings.recognisedBy });
  }

  send(question: EvaluationQuestion): SentPrompt {
    const written = this.#write(question);
    const { body, blocks } = this.#inPlace?.placeChat(
      JSON.stringify({ model: this.#settings.model, messages: written }),
    ) ?? {
      body: undefined,
      blocks: [],
    };
    const messages = body === undefined ? written : (JSON.parse(body) as { messages: readonly ChatMessage[] }).messages;
    const latest = blocks.at(-1)?.sent.order ?? [];
    return { messages, placesMoved: placesMoved(latest), answered: () => {}, failed: () => {} };
  }

  #write(question: EvaluationQuestion): readonly ChatMessage[] {
    const plain = plainMessages(question, this.#settings.system);
    const before = this.#settings.keepsDocuments ? (question.conversation?.before ?? []) : [];
    const last = plain.length - 1;
    return plain.map((message, at) => {
      // Behind the system message, question and answer take turns.
      const turn = at === last ? question : message.role === 'user' ? before[(at - 1) / 2] : undefined;
      return turn === undefined ? message : { ...message, content: `${written(turn)}${message.content}` };
    });
  }
}

function written(turn: Pick<AnsweredTurn, 'passages'>): string {
  return renderDocuments(prepareDocuments(documentsOf(turn)).documents, RENDER.template);
}
