import fc from 'fast-check';
import { expect } from 'vitest';
import type { ChatMessage } from '../src/index.js';
import type { ConversationName } from '../src/internal.js';
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
    | 'regenerate'
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
  'regenerate',
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

/** One branch of a conversation, as a client keeps it. */
interface Branch {
  readonly name: ConversationName;
  messages: readonly ChatMessage[];
  last: { readonly messages: readonly ChatMessage[]; readonly documents: readonly Passage[] } | undefined;
}

/** One prompt that was sent for a request, and what the model said to it. */
interface Rendering {
  readonly prompt: readonly ChatMessage[];
  readonly answers: Set<string>;
}

const SYSTEM: ChatMessage = { role: 'system', content: 'Answer.' };

/** What clients of a world have to send, and how it is found in a prompt. */
export interface WorldOptions {
  /** Whether the log is large enough for the whole world, so that nothing is ever forgotten. */
  readonly remembersAll: boolean;
  /** Whether every other request has its documents sent again where the conversation shows them. */
  readonly sendsAgain: boolean;
  /** By its number, below `PASSAGES`. */
  readonly passage: (number: number) => Passage;
  /** How often the full text of a passage stands in what the model sees. */
  readonly copies: (served: Pick<Served, 'prompt'>, passage: Passage) => number;
  readonly question: (pick: number) => ChatMessage;
  readonly answer: (pick: number) => ChatMessage;
}

/** Passages without anything in common, and few questions and answers, so that equal words are everywhere. */
const SHORT_TEXTS: WorldOptions = {
  remembersAll: true,
  sendsAgain: false,
  passage,
  copies,
  question: (pick) => ({ role: 'user', content: `Question ${pick % 3}?` }),
  answer: (pick) => ({ role: 'assistant', content: `Answer ${pick % 2}.` }),
};

/** Names that differ in one part each: tenant, end user or session. */
const NAMES: readonly ConversationName[] = [
  { tenant: 'a', session: 's' },
  { tenant: 'a', session: 't' },
  { tenant: 'a', user: 'u', session: 's' },
  { tenant: 'a', user: 'v', session: 's' },
  { tenant: 'b', session: 's' },
  { tenant: 'b', user: 'u', session: 's' },
];

/** Plays the steps, and holds what every prompt shows against what its client knows. */
export class World {
  readonly pipeline: Pipeline;
  readonly branches: Branch[] = [];
  readonly options: WorldOptions;
  /** By conversation and messages: the prompts that were sent, in the order in which they were last sent. */
  readonly renderings = new Map<string, Rendering[]>();
  /** By conversation and messages: what was supplied with them. */
  readonly supplied = new Map<string, string[]>();
  references = 0;
  replayed = 0;
  forgotten = 0;
  sentAgain = 0;

  constructor(pipeline: Pipeline, options: Partial<WorldOptions> = {}) {
    this.pipeline = pipeline;
    this.options = { ...SHORT_TEXTS, ...options };
    for (const name of NAMES) this.open(name);
  }

  open(name: ConversationName): void {
    this.branches.push({ name, messages: [SYSTEM], last: undefined });
  }

  play({ kind, who, pick, passages }: Step): void {
    const one = this.branches[who % this.branches.length]!;
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
      case 'regenerate':
        if (one.last !== undefined) this.request(one, one.last.messages, documents, answer(pick));
        return;
      case 'concurrent': {
        const messages = [...one.messages, question(pick)];
        const other = { ...one };
        this.request(one, messages, documents, answer(pick));
        this.request(other, [...other.messages, question(pick + 1)], documents, answer(pick + 1));
        if (this.branches.length < 12) this.branches.push(other);
        return;
      }
      case 'truncate':
        one.messages = [SYSTEM, ...one.messages.slice(3)];
        return;
      case 'compact':
        one.messages = [SYSTEM, { role: 'assistant', content: `Summary ${pick}.` }];
        return;
      case 'edit':
        one.messages = one.messages.map((message, at) =>
          at === 1 ? { ...message, content: `Edited ${pick}` } : message,
        );
        return;
      case 'fork':
        if (this.branches.length < 12) this.branches.push({ ...one });
        return;
      case 'open':
        if (this.branches.length < 12)
          this.open(pick % 3 === 0 ? { tenant: 'a', user: 'v', session: `n${pick}` } : NAMES[pick % NAMES.length]!);
    }
  }

  ask(one: Branch, pick: number, documents: readonly Passage[]): void {
    const { question, answer } = this.options;
    this.request(one, [...one.messages, question(pick)], documents, answer(pick));
  }

  /** An agent's step: the model called a tool, and asks again with the result behind the question that was sent. */
  act(one: Branch, pick: number, documents: readonly Passage[]): void {
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
    one: Branch,
    messages: readonly ChatMessage[],
    documents: readonly Passage[],
    reply: ChatMessage | undefined,
  ): void {
    this.pipeline.deduplicate = !this.options.sendsAgain || this.pipeline.now % 2 === 0;
    const served = this.pipeline.serve(one.name, messages, documents, reply);
    const key = keyOf(one, messages);
    this.supplied.set(key, [...(this.supplied.get(key) ?? []), ...documents.map(({ content }) => content)]);
    this.check(one, messages, served);
    this.keep(key, served.prompt, reply);
    this.references += served.references;
    one.last = { messages, documents };
    if (reply !== undefined) one.messages = [...messages, reply];
  }

  keep(key: string, prompt: readonly ChatMessage[], reply: ChatMessage | undefined): void {
    const before = this.renderings.get(key) ?? [];
    const text = JSON.stringify(prompt);
    const known = before.find((rendering) => JSON.stringify(rendering.prompt) === text);
    const rendering = known ?? { prompt, answers: new Set() };
    if (reply !== undefined) rendering.answers.add(JSON.stringify(reply));
    this.renderings.set(key, [...before.filter((each) => each !== known), rendering]);
  }

  check(one: Branch, messages: readonly ChatMessage[], served: Served): void {
    const { prompt } = served;
    this.checkWords(messages, served);
    this.checkLabels(served);
    const own = this.ownPassages(one, messages, served.supplied);
    for (const [, content] of JSON.stringify(prompt).matchAll(/(Passage p\d in version \d\.)/g)) {
      expect(
        own.some((each) => each.endsWith(content!)),
        `${content} is of another conversation`,
      ).toBe(true);
    }
    const continued = this.options.remembersAll
      ? this.checkRecall(one, messages, served)
      : this.checkCompleteness(one, messages, served);
    this.checkSupplied(served, continued);
  }

  /** The client's own words stand in the prompt, in their order. */
  checkWords(messages: readonly ChatMessage[], { prompt }: Served): void {
    let place = 0;
    for (const given of messages) {
      const found = prompt.findIndex((message, at) => at >= place && isRenderingOf(message, given));
      expect(found, String(given.content)).toBeGreaterThanOrEqual(place);
      place = found + 1;
    }
  }

  /** A label names one text, and a hint only names what stands before it. */
  checkLabels({ prompt }: Served): void {
    const labels = labelsIn(prompt);
    if (this.options.sendsAgain) {
      const texts = labelledTexts(prompt);
      expect(new Set(texts.map(([label]) => label)).size).toBe(new Set(texts.map((each) => JSON.stringify(each))).size);
    } else expect(new Set(labels).size).toBe(labels.length);
    for (const hint of hintedLabels(prompt)) expect(labelsIn(prompt.slice(0, hint.messages))).toContain(hint.label);
  }

  /**
   * What may stand in a prompt: what it brings, and what requests brought that were word for word the beginning of this
   * one.
   */
  ownPassages(one: Branch, messages: readonly ChatMessage[], supplied: readonly Passage[]): readonly string[] {
    const beginnings = messages.map((_, place) => this.supplied.get(keyOf(one, messages.slice(0, place + 1))) ?? []);
    return [...supplied.map(({ content }) => content), ...beginnings.flat()];
  }

  /**
   * Nothing is forgotten: the prompt begins with what the latest request was rendered to that these messages continue,
   * and what is reported as not known are answers to what was never asked.
   */
  checkRecall(one: Branch, messages: readonly ChatMessage[], { prompt, isForgotten }: Served): Rendering | undefined {
    const place = messages.findLastIndex((_, at) => at > 0 && this.renderings.has(keyOf(one, messages.slice(0, at))));
    const answered = place < 0 ? messages : messages.slice(place);
    const behind = place < 0 ? 0 : answered.findIndex(({ role }) => role !== 'assistant');
    expect(isForgotten).toBe(answered.slice(behind).some(({ role }) => role === 'assistant'));
    if (place < 0) return undefined;
    const candidates = this.renderings.get(keyOf(one, messages.slice(0, place)))!;
    const reply = JSON.stringify(messages[place]);
    const continued =
      candidates.findLast(({ answers }) => answers.has(reply)) ??
      (messages[place]!.role === 'assistant' ? candidates.findLast(({ answers }) => answers.size === 0) : undefined) ??
      candidates.at(-1)!;
    this.replayed++;
    expect(JSON.stringify(prompt.slice(0, continued.prompt.length))).toBe(JSON.stringify(continued.prompt));
    return continued;
  }

  /**
   * Something may be forgotten: then the caller is told, or the prompt begins with what was rendered for the latest
   * answered turn.
   */
  checkCompleteness(
    one: Branch,
    messages: readonly ChatMessage[],
    { prompt, isForgotten }: Served,
  ): Rendering | undefined {
    const text = (all: readonly ChatMessage[]) => JSON.stringify(all).slice(0, -1);
    const begins = (rendering: Rendering) => text(prompt).startsWith(text(rendering.prompt));
    const places = messages.flatMap((_, at) => (at > 0 ? [at] : [])).reverse();
    const sentAt = (place: number) => this.renderings.get(keyOf(one, messages.slice(0, place))) ?? [];
    const latest = places.find((place) => messages[place]!.role === 'assistant' && sentAt(place).length > 0);
    if (isForgotten) this.forgotten++;
    else if (latest !== undefined) {
      this.replayed++;
      expect(sentAt(latest).some(begins), 'what an earlier turn showed is there, or its absence is reported').toBe(
        true,
      );
    }
    return places.flatMap(sentAt).find(begins);
  }

  /** Every document that the request supplies is there: once, or once more where it is sent again. */
  checkSupplied(served: Served, continued: Rendering | undefined): void {
    const { copies, sendsAgain } = this.options;
    for (const each of served.supplied) {
      if (!sendsAgain) {
        expect(copies(served, each), each.content).toBe(1);
        continue;
      }
      const before = continued === undefined ? 0 : copies(continued, each);
      const asked = served.supplied.filter(({ content }) => content === each.content).length;
      if (!this.pipeline.deduplicate && before > 0) this.sentAgain++;
      expect(copies(served, each), each.content).toBe(this.pipeline.deduplicate ? Math.max(1, before) : before + asked);
    }
  }
}

function keyOf({ name }: Branch, messages: readonly ChatMessage[]): string {
  return JSON.stringify([name.tenant, name.user ?? null, name.session, messages]);
}

/** The documents of a prompt: label and text. */
function labelledTexts(prompt: readonly ChatMessage[]): (readonly [string, string])[] {
  return prompt.flatMap(({ content }) =>
    [...String(content ?? '').matchAll(/<document id="([^"]+)"[^>]*>\n([\s\S]*?)\n<\/document>/g)].map(
      ([, label, text]) => [label!, text!] as const,
    ),
  );
}

function isRenderingOf(message: ChatMessage, given: ChatMessage): boolean {
  return message.role === given.role && String(message.content).includes(String(given.content));
}

function isFirst({ content }: Passage, place: number, all: readonly Passage[]): boolean {
  return all.findIndex((other) => other.content === content) === place;
}
