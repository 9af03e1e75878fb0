import type { ReceivedRequest } from '../fake-engine.js';
import { type Ask, type ClientDocument, type Identity, markersIn } from './actions.js';
import type { Expectation } from './model.js';
import { type PromptText, plain, promptText } from './prompt-text.js';

/** What became of a request. */
export interface Outcome {
  readonly status: number;
  /** The error's code, if the answer is an error. */
  readonly code: string | undefined;
  /** The value of `x-warmpath`. */
  readonly state: string;
  /** What reached the engine. */
  readonly received: readonly ReceivedRequest[];
}

export interface Violation {
  /** What kind of violation, the same words for the same kind. */
  readonly kind: string;
  readonly detail: string;
}

/** What the checker needs beside the expectation. */
interface CheckContext {
  ownerOf(marker: string): Identity | undefined;
  /** Salt by tenant where the gateways have a key for salts. */
  readonly salts: Map<string, string> | undefined;
}

const FORGOTTEN = 'WARMPATH_CONVERSATION_FORGOTTEN';

/** Whether an answer says that the conversation was forgotten. */
export function isMarkedForgotten({ state }: Pick<Outcome, 'state'>): boolean {
  return /(?:^|,)\s*conversation=forgotten\s*(?:[;,]|$)/.test(state);
}

/** Whether a request was refused because the shared store did not answer in time. */
export function isUnavailable({ status, code }: Pick<Outcome, 'status' | 'code'>): boolean {
  return status === 503 && code === 'WARMPATH_STORE_UNAVAILABLE';
}

/** Everything that is wrong with an answer. */
export function check(ask: Ask, expected: Expectation, outcome: Outcome, context: CheckContext): readonly Violation[] {
  const leaks = outcome.received.flatMap(({ body }) => leaksIn(body, expected, context));
  return [...leaks, ...checkAnswer(ask, expected, outcome), ...checkSalts(expected, outcome, context)];
}

/** Markers that nobody brought whose text may stand in this prompt. */
function leaksIn(body: string, { permitted, identity }: Expectation, { ownerOf }: CheckContext): Violation[] {
  return [...markersIn(body)].flatMap((marker) => {
    if (permitted.has(marker)) return [];
    const owner = ownerOf(marker);
    const detail = `${marker} of ${named(owner)} stands in a prompt of ${named(identity)}`;
    return [{ kind: `leak: ${relation(owner, identity)}`, detail }];
  });
}

function checkAnswer(ask: Ask, expected: Expectation, outcome: Outcome): Violation[] {
  const { status, code, received } = outcome;
  const { identity, mustForget, mayForget } = expected;
  const { forgotten, bypass } = ask.body.warmpath ?? {};
  const wantsMark = forgotten === 'mark' || bypass === true;
  if (isUnavailable(outcome) && expected.isShared && received.length === 0 && !wantsMark) return [];
  if (status === 409 && code === FORGOTTEN) {
    if (wantsMark) return [violation('refused instead of marked', `named by ${identity.namedBy}`)];
    if (received.length > 0)
      return [violation('refused and sent', 'the engine got a request that was answered by 409')];
    return mayForget ? [] : [violation('forgot what it knows', '409')];
  }
  if (status !== 200) return [violation(`answered by ${status}`, `${code}`)];
  const isMarked = isMarkedForgotten(outcome);
  if (received.length !== 1) return [violation('sent more or less than once', `${received.length} times`)];
  if (isMarked && !mayForget) return [violation('forgot what it knows', `x-warmpath: ${outcome.state}`)];
  if (isMarked && !wantsMark) return [violation('marked instead of refused', `named by ${identity.namedBy}`)];
  if (!isMarked && mustForget) {
    return [
      violation('claims to remember', 'a turn before this one never came, or is gone, and the answer does not say so'),
    ];
  }
  const [{ body }] = received as [ReceivedRequest];
  if (ask.body.warmpath?.bypass === true) return checkBypassed(ask, body);
  const prompt = promptText({ body });
  const required = isMarked ? [] : expected.required;
  return [...checkShown(ask, required, prompt), ...checkLabels(prompt), ...checkReferences(ask, required, prompt)];
}

/** Every document of this request and of the turns before it stands in the prompt in full. */
function checkShown(ask: Ask, required: Expectation['required'], { text }: PromptText): Violation[] {
  const isShown = ({ content }: ClientDocument) => text.includes(plain(content));
  const own = ask.body.documents ?? [];
  const missing = own.filter((document) => !isShown(document));
  const lost = required.filter((renderings) => !renderings.some((documents) => documents.every(isShown)));
  return [
    ...missing.map(({ content }) => violation('lost a document of the request', content)),
    ...lost.map(([documents]) =>
      violation('lost a document of an earlier turn', documents!.find((document) => !isShown(document))?.content ?? ''),
    ),
  ];
}

/** A label stands for one text, and a reference names one that stands before it. */
function checkLabels({ shown, referred }: PromptText): Violation[] {
  const found: Violation[] = [];
  const texts = new Map<string, string>();
  for (const { label, text } of shown) {
    if ((texts.get(label) ?? text) !== text) found.push(violation('one label for two texts', label));
    texts.set(label, text);
  }
  for (const { label, at } of referred) {
    const isBefore = shown.some((document) => plain(document.label) === plain(label) && document.end <= at);
    if (!isBefore) found.push(violation('a reference to what does not stand before it', label));
  }
  return found;
}

/**
 * A document that an earlier turn brought as well stands behind that turn, or is referred to there by the label of its
 * text.
 */
function checkReferences(
  ask: Ask,
  required: Expectation['required'],
  { newest, shown, referred }: PromptText,
): Violation[] {
  const earlier = new Set(required.flat(2).map(({ content }) => content));
  const latest = new Set(referred.filter(({ at }) => at >= newest).map(({ label }) => label));
  return (ask.body.documents ?? []).flatMap(({ content }) => {
    const places = shown.filter(({ text }) => text.includes(plain(content)));
    const isHere = places.some(({ start, label }) => start >= newest || latest.has(label));
    if (!earlier.has(content) || places.length === 0 || isHere) return [];
    return [violation('a document of the request neither shown nor referred to', content)];
  });
}

/** As it came, but for the gateway's own field and the salt. Of a translation only what stands in it is looked at. */
function checkBypassed({ api, body }: Ask, received: string): Violation[] {
  const { warmpath: _, ...rest } = body;
  const { cache_salt: __, ...sent } = JSON.parse(received) as Record<string, unknown>;
  const isTranslated =
    api !== 'chat' && (api === 'messages' ? 'messages' in sent && !('system' in sent) : 'messages' in sent);
  if (isTranslated || JSON.stringify(sent) === JSON.stringify(rest)) return [];
  return [violation('a bypassed request was changed', JSON.stringify(sent))];
}

function checkSalts({ identity }: Expectation, { received }: Outcome, { salts }: CheckContext): Violation[] {
  if (salts === undefined) return [];
  return received.flatMap(({ body }) => {
    const salt = (JSON.parse(body) as { cache_salt?: unknown }).cache_salt;
    if (typeof salt !== 'string') return [violation('no cache salt', body.slice(0, 200))];
    const tenant = salts.get(salt);
    salts.set(salt, tenant ?? identity.tenant);
    const isForeign = tenant !== undefined && tenant !== identity.tenant;
    return isForeign ? [violation('one cache salt for two tenants', `${tenant} and ${identity.tenant}`)] : [];
  });
}

function violation(kind: string, detail: string): Violation {
  return { kind, detail: detail.slice(0, 400) };
}

function relation(owner: Identity | undefined, asker: Identity): string {
  if (owner === undefined) return 'nobody brought it';
  if (owner.tenant !== asker.tenant) return 'of another tenant';
  if (owner.user !== asker.user) return 'of another end user';
  if (asker.name === undefined) return 'into a request without a name';
  return owner.name === asker.name ? 'of another branch, or of a deleted conversation' : 'of another name';
}

function named(identity: Identity | undefined): string {
  if (identity === undefined) return 'nobody';
  return `(${identity.tenant}, ${identity.user || 'no user'}, ${identity.name ?? 'no name'})`;
}
