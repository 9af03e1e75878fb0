import { answerHash, type LabelMap } from '@warmpath/core/internal';
import { isObject, type JsonObject } from '../json/json-scanner.js';

/** Characters of one response; a longer one has no hashes. */
const MAX_CHARACTERS = 1_048_576;

interface Call {
  name: string;
  arguments: string;
}

interface Draft {
  text: string;
  readonly calls: Map<number, Call>;
}

/**
 * Collects the model's answers from a response of any API and hashes them: an unnamed conversation is recognised by the
 * hash at its next turn. An answer that cannot be read has no hash.
 */
export class AnswerReader {
  /** By index of the choice. */
  readonly #drafts = new Map<number, Draft>();
  #characters = 0;
  readonly #labels: LabelMap | undefined;

  /** @param labels Labels in the answer that its client gets as its own. */
  constructor(labels: LabelMap | undefined) {
    this.#labels = labels;
  }

  /** Reads a whole JSON response. */
  response(body: JsonObject): void {
    const { choices, content, output } = body;
    for (const choice of arrayOf(choices)) this.#message(numberOf(choice['index']), choice['message']);
    if (content !== undefined) this.#message(0, { content });
    for (const item of arrayOf(output)) if (item['type'] === 'message') this.#message(0, item);
  }

  /** Reads one event of a stream. */
  event(event: JsonObject): void {
    const { choices, type, delta } = event;
    for (const choice of arrayOf(choices)) this.#delta(numberOf(choice['index']), choice['delta']);
    if (type === 'response.output_text.delta' && typeof delta === 'string') this.#addText(0, delta);
    if (type === 'content_block_delta' && isObject(delta)) this.#addText(0, delta['text']);
  }

  /** Hashes of the answers so far, one for each choice with text or calls. */
  hashes(): readonly string[] {
    if (this.#characters > MAX_CHARACTERS) return [];
    return [...this.#drafts.values()].flatMap(({ text, calls }) => {
      const toolCalls = [...calls]
        .sort(([a], [b]) => a - b)
        .map(([, call]) => ({ function: { ...call, arguments: this.#mapped(call.arguments) } }));
      return answerHash({ content: this.#mapped(text), tool_calls: toolCalls }) ?? [];
    });
  }

  /** As the client gets it. */
  #mapped(text: string): string {
    return this.#labels?.inAnswer(text) ?? text;
  }

  #message(choice: number, message: unknown): void {
    if (!isObject(message)) return;
    const { content, tool_calls: toolCalls } = message;
    if (typeof content === 'string') this.#addText(choice, content);
    for (const part of arrayOf(content)) this.#addText(choice, part['text']);
    for (const [place, call] of arrayOf(toolCalls).entries()) this.#addCall(choice, place, call);
  }

  #delta(choice: number, delta: unknown): void {
    if (!isObject(delta)) return;
    this.#addText(choice, delta['content']);
    for (const call of arrayOf(delta['tool_calls'])) this.#addCall(choice, numberOf(call['index']), call);
  }

  #addText(choice: number, text: unknown): void {
    if (typeof text !== 'string' || this.#overflows(text)) return;
    this.#draftOf(choice).text += text;
  }

  #addCall(choice: number, place: number, call: JsonObject): void {
    const given = isObject(call['function']) ? call['function'] : {};
    const { calls } = this.#draftOf(choice);
    const known = calls.get(place) ?? { name: '', arguments: '' };
    calls.set(place, known);
    if (typeof given['name'] === 'string' && !this.#overflows(given['name'])) known.name += given['name'];
    if (typeof given['arguments'] === 'string' && !this.#overflows(given['arguments']))
      known.arguments += given['arguments'];
  }

  #overflows(text: string): boolean {
    this.#characters += text.length;
    return this.#characters > MAX_CHARACTERS;
  }

  #draftOf(choice: number): Draft {
    const known = this.#drafts.get(choice);
    if (known !== undefined) return known;
    const draft: Draft = { text: '', calls: new Map() };
    this.#drafts.set(choice, draft);
    return draft;
  }
}

function arrayOf(value: unknown): readonly JsonObject[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

function numberOf(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}
