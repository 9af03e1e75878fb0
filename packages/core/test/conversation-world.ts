import fc from 'fast-check';
import { expect } from 'vitest';
import type { ChatMessage } from '../src/index.js';
import {
  copies,
  hintedLabels,
  labelsIn,
  PASSAGES,
  type Passage,
  type Pipeline,
  passage,
  type Served,
} from './conversation-model.js';

/** One step of a random world of clients. Numbers are taken modulo what there is. */
export interface Step {
  readonly kind:
    | 'ask'
    | 'ask'
    | 'act'
    | 'retry'
    | 'truncate'
    | 'compact'
    | 'edit'
    | 'fork'
    | 'open'
    | 'fail'
    | 'concurrent';
  readonly who: number;
  readonly pick: number;
  readonly passages: readonly number[];
}

const KINDS: readonly Step['kind'][] = [
  'ask',
  'ask',
  'ask',
  'act',
  'retry',
  'truncate',
  'compact',
  'edit',
  'fork',
  'open',
  'fail',
  'concurrent',
];

export const steps = fc.array(
  fc.record({
    kind: fc.constantFrom(...KINDS),
    who: fc.nat({ max: 30 }),
    pick: fc.nat({ max: 30 }),
    passages: fc.uniqueArray(fc.nat({ max: PASSAGES - 1 }), { maxLength: 4 }),
  }),
  { minLength: 6, maxLength: 24 },
);

/** One conversation, as its client keeps it. */
interface Conversation {
  readonly name: { readonly tenant: string; readonly session: string | undefined };
  messages: readonly ChatMessage[];
  /** What the last request with exactly these messages as its beginning was rendered to; `undefined` after the client changed them. */
  sent: { readonly prompt: readonly ChatMessage[]; readonly length: number } | undefined;
  last: { readonly messages: readonly ChatMessage[]; readonly documents: readonly Passage[] } | undefined;
}

const SYSTEM: ChatMessage = { role: 'system', content: 'Answer.' };

/** What clients of a world have to send, and how it is found in a prompt. */
export interface WorldOptions {
  readonly checksBytes: boolean;
  /** By its number, below `PASSAGES`. */
  readonly passage: (number: number) => Passage;
  /** How often the full text of a passage stands in what the model sees. */
  readonly copies: (served: Served, passage: Passage) => number;
  readonly question: (pick: number) => ChatMessage;
  readonly answer: (pick: number) => ChatMessage;
}

/** Passages without anything in common, and few questions and answers, so that conversations meet. */
const SHORT_TEXTS: WorldOptions = {
  checksBytes: true,
  passage,
  copies,
  question: (pick) => ({ role: 'user', content: `Question ${pick % 3}?` }),
  answer: (pick) => ({ role: 'assistant', content: `Answer ${pick % 2}.` }),
};

/** Plays the steps, and holds what every prompt shows against what its client knows. */
export class World {
  readonly pipeline: Pipeline;
  readonly conversations: Conversation[] = [];
  readonly options: WorldOptions;
  /** By tenant, session and messages with the answer: the renderings that a later turn could continue. */
  readonly renderings = new Map<string, Set<string>>();
  /** By tenant, session and messages (with the answer, where no name vouches for them): what was supplied with them. */
  readonly supplied = new Map<string, string[]>();
  references = 0;
  replayed = 0;

  constructor(pipeline: Pipeline, options: Partial<WorldOptions> = {}) {
    this.pipeline = pipeline;
    this.options = { ...SHORT_TEXTS, ...options };
    for (const session of ['s', 't', undefined, undefined]) this.open('a', session);
    this.open('b', undefined);
    this.open('b', 's');
  }

  open(tenant: string, session: string | undefined): void {
    this.conversations.push({ name: { tenant, session }, messages: [SYSTEM], sent: undefined, last: undefined });
  }

  play({ kind, who, pick, passages }: Step): void {
    const one = this.conversations[who % this.conversations.length]!;
    const { passage, question, answer } = this.options;
    const documents = passages.map(passage);
    switch (kind) {
      case 'ask':
        this.ask(one, pick, documents);
        return;
      case 'fail':
        this.request(one, [...one.messages, question(pick)], documents, undefined);
        return;
      case 'act':
        this.act(one, pick, documents);
        return;
      case 'retry':
        if (one.last !== undefined) this.request(one, one.last.messages, one.last.documents, answer(pick));
        return;
      case 'concurrent': {
        const messages = [...one.messages, question(pick)];
        const other = { ...one };
        this.request(one, messages, documents, answer(pick));
        this.request(other, [...other.messages, question(pick + 1)], documents, answer(pick + 1));
        if (this.conversations.length < 12) this.conversations.push(other);
        return;
      }
      case 'truncate':
        one.messages = [SYSTEM, ...one.messages.slice(3)];
        one.sent = undefined;
        return;
      case 'compact':
        one.messages = [SYSTEM, { role: 'assistant', content: `Summary ${pick}.` }];
        one.sent = undefined;
        return;
      case 'edit':
        one.messages = one.messages.map((message, at) =>
          at === 1 ? { ...message, content: `Edited ${pick}` } : message,
        );
        one.sent = undefined;
        return;
      case 'fork':
        if (this.conversations.length < 12) this.conversations.push({ ...one });
        return;
      case 'open':
        if (this.conversations.length < 12)
          this.open(pick % 2 === 0 ? 'a' : 'b', pick % 3 === 0 ? `n${pick}` : undefined);
    }
  }

  ask(one: Conversation, pick: number, documents: readonly Passage[]): void {
    const { question, answer } = this.options;
    this.request(one, [...one.messages, question(pick)], documents, answer(pick));
  }

  /** An agent's step: the model called a tool, and asks again with the result behind the question that was sent. */
  act(one: Conversation, pick: number, documents: readonly Passage[]): void {
    const { question, answer, passage } = this.options;
    const call = { type: 'function', id: `c${pick}`, function: { name: 'find', arguments: `{"n":${pick}}` } };
    const calling: ChatMessage = { role: 'assistant', content: null, tool_calls: [call] };
    this.request(one, [...one.messages, question(pick)], documents, calling);
    const result: ChatMessage = { role: 'tool', tool_call_id: `c${pick}`, content: `Result ${pick}` };
    this.request(
      one,
      [...one.messages, result],
      [...documents, passage(pick % PASSAGES)].filter(isFirst),
      answer(pick),
    );
  }

  request(
    one: Conversation,
    messages: readonly ChatMessage[],
    documents: readonly Passage[],
    reply: ChatMessage | undefined,
  ): void {
    const served = this.pipeline.serve(one.name, messages, documents, reply);
    this.supply(one, messages, reply, documents);
    this.check(one, messages, served);
    this.references += served.references;
    one.last = { messages, documents };
    if (reply === undefined) return;
    one.messages = [...messages, reply];
    one.sent = { prompt: served.prompt, length: messages.length };
    const rendered = this.renderings.get(keyOf(one, one.messages)) ?? new Set();
    rendered.add(JSON.stringify(served.prompt));
    this.renderings.set(keyOf(one, one.messages), rendered);
  }

  supply(
    one: Conversation,
    messages: readonly ChatMessage[],
    reply: ChatMessage | undefined,
    documents: readonly Passage[],
  ): void {
    if (one.name.session === undefined && reply === undefined) return;
    const key = keyOf(one, one.name.session === undefined ? [...messages, reply!] : messages);
    this.supplied.set(key, [...(this.supplied.get(key) ?? []), ...documents.map(({ content }) => content)]);
  }

  /** What may stand in a prompt: what it brings, and what requests brought that were word for word the beginning of this one. */
  ownPassages(one: Conversation, messages: readonly ChatMessage[], supplied: readonly Passage[]): readonly string[] {
    const beginnings = messages.map((_, place) => this.supplied.get(keyOf(one, messages.slice(0, place + 1))) ?? []);
    return [...supplied.map(({ content }) => content), ...beginnings.flat()];
  }

  check(one: Conversation, messages: readonly ChatMessage[], served: Served): void {
    for (const each of served.supplied) expect(this.options.copies(served, each), each.content).toBe(1);
    const { prompt } = served;
    // The client's own words stand in the prompt, in their order.
    let place = 0;
    for (const given of messages) {
      const found = prompt.findIndex((message, at) => at >= place && isRenderingOf(message, given));
      expect(found, String(given.content)).toBeGreaterThanOrEqual(place);
      place = found + 1;
    }
    const labels = labelsIn(prompt);
    expect(new Set(labels).size).toBe(labels.length);
    for (const hint of hintedLabels(prompt)) expect(labelsIn(prompt.slice(0, hint.messages))).toContain(hint.label);
    const own = this.ownPassages(one, messages, served.supplied);
    for (const [, content] of JSON.stringify(prompt).matchAll(/(Passage p\d in version \d\.)/g)) {
      expect(
        own.some((each) => each.endsWith(content!)),
        `${content} is of another conversation`,
      ).toBe(true);
    }
    const { sent } = one;
    if (!this.options.checksBytes || sent === undefined || messages.length <= sent.length) return;
    // Two renderings of the very same words and answer cannot be told apart; what they hold is checked all the same.
    if (this.renderings.get(keyOf(one, messages.slice(0, sent.length + 1)))!.size > 1) return;
    this.replayed++;
    expect(JSON.stringify(prompt.slice(0, sent.prompt.length))).toBe(JSON.stringify(sent.prompt));
  }
}

function keyOf({ name }: Conversation, messages: readonly ChatMessage[]): string {
  return JSON.stringify([name.tenant, name.session, messages]);
}

function isRenderingOf(message: ChatMessage, given: ChatMessage): boolean {
  return message.role === given.role && String(message.content).includes(String(given.content));
}

function isFirst({ content }: Passage, place: number, all: readonly Passage[]): boolean {
  return all.findIndex((other) => other.content === content) === place;
}
