import {
  type Ask,
  type ClientDocument,
  historyOf,
  type Identity,
  identityOf,
  isAssistant,
  markersOf,
} from './actions.js';

/** What a world is like, as far as it decides what may be remembered. */
export interface WorldMemory {
  readonly gateways: number;
  readonly isShared: boolean;
  /** Whether the gateways have room for every turn. */
  readonly keepsAll: boolean;
}

/** A request that was answered. */
interface Turn {
  readonly documents: readonly ClientDocument[];
  /** The gateways' processes that know it; `store` for all of them. */
  readonly knownTo: Set<string>;
  readonly isBypassed: boolean;
  /** Answered with the mark that what came before is forgotten. */
  readonly isCutOff: boolean;
  /** Somebody who may have had the right to it asked that it be forgotten. */
  mayBeDeleted: boolean;
}

/** Which answers to a request are right. */
export interface Expectation {
  readonly identity: Identity;
  /** Markers that may stand in the prompt. */
  readonly permitted: ReadonlySet<string>;
  /**
   * For each earlier turn: renderings, of one of which all documents stand in the prompt. Holds only where the
   * conversation is not forgotten.
   */
  readonly required: readonly (readonly (readonly ClientDocument[])[])[];
  /** Answered by 409 or by the mark and by nothing else. */
  readonly mustForget: boolean;
  readonly mayForget: boolean;
  /** Some earlier turn is known to other gateways, and to this one only by the store. */
  readonly crossesGateways: boolean;
  /** Whether a shared store is asked that may not answer. */
  readonly isShared: boolean;
}

/** Where in a history an earlier request ended, and what was sent there. */
interface Place {
  /** Whatever gateway served them. */
  readonly sent: readonly Turn[];
  readonly known: readonly Turn[];
}

/**
 * What the contract lets gateways know: for each named conversation the turns that were answered, by the messages they
 * had. It reads requests and answers, and nothing of how a gateway works.
 */
export class ConversationModel {
  readonly #world: WorldMemory;
  readonly #turns = new Map<string, Map<string, Turn[]>>();
  readonly #generation: number[];
  /** Who brought which marker first. */
  readonly #owners = new Map<string, Identity>();

  constructor(world: WorldMemory) {
    this.#world = world;
    this.#generation = new Array<number>(world.gateways).fill(0);
  }

  /** What is right for a request that is about to be sent. */
  expect(ask: Ask): Expectation {
    const identity = identityOf(ask);
    const { documents = [], warmpath } = ask.body;
    const own = markersOf(documents);
    for (const marker of own) if (!this.#owners.has(marker)) this.#owners.set(marker, identity);
    const places = identity.name === undefined ? [] : this.#places(ask, identity);
    // What is sent as it came gets nothing of earlier turns and lacks nothing, whatever is known of them.
    const isBypassed = warmpath?.bypass === true;
    const permitted = new Set(own);
    for (const { sent } of isBypassed ? [] : places) {
      for (const turn of sent) for (const marker of markersOf(turn.documents)) permitted.add(marker);
    }
    const afterCut = places.slice(Math.max(0, lastCut(places)));
    const isUncertain =
      !this.#world.keepsAll ||
      afterCut.length < places.length ||
      afterCut.some(
        ({ known, sent }) =>
          known.some(({ isCutOff, mayBeDeleted }) => isCutOff || mayBeDeleted) ||
          sent.some(({ isBypassed }) => isBypassed),
      );
    const isUnknown = ({ known, sent }: Place) => known.length === 0 && !sent.some(({ isBypassed }) => isBypassed);
    const isMissing = afterCut.some(isUnknown);
    const served = this.#process(ask.gateway);
    return {
      identity,
      permitted,
      required: (isBypassed ? [] : afterCut)
        .filter(({ known, sent }) => known.length > 0 && !sent.some(({ isBypassed }) => isBypassed))
        .map(({ known }) => known.map((turn) => turn.documents)),
      mustForget: isMissing && !isBypassed,
      mayForget: isMissing || (places.length > 0 && isUncertain),
      crossesGateways: places.some(
        ({ known }) => known.length > 0 && known.every(({ knownTo }) => !knownTo.has(served)),
      ),
      isShared: this.#world.isShared,
    };
  }

  /** The request was answered, `isCutOff` with the mark. */
  answered(ask: Ask, isCutOff: boolean): void {
    const identity = identityOf(ask);
    if (identity.name === undefined) return;
    const { opening, messages } = historyOf(ask);
    const turns = this.#turns.get(keyOf(identity)) ?? new Map<string, Turn[]>();
    this.#turns.set(keyOf(identity), turns);
    const at = linkOf(opening, messages);
    const knownTo = new Set([this.#process(ask.gateway), ...(this.#world.isShared ? ['store'] : [])]);
    const { documents = [], warmpath } = ask.body;
    const turn: Turn = {
      documents,
      knownTo,
      isBypassed: warmpath?.bypass === true,
      isCutOff,
      mayBeDeleted: false,
    };
    turns.set(at, [...(turns.get(at) ?? []), turn]);
  }

  restarted(gateway: number): void {
    this.#generation[gateway]!++;
  }

  /**
   * A tenant asked that a conversation be forgotten. Of a single gateway it is gone at once; others hear of it later.
   * Which end user's it is such a request does not say, so those of users may be forgotten or not.
   */
  deleted(tenant: string, name: string): void {
    for (const [key, turns] of this.#turns) {
      const [ofTenant, user, ofName] = JSON.parse(key) as [string, string, string];
      if (ofTenant !== tenant || ofName !== name) continue;
      if (user === '' && this.#world.gateways === 1) this.#turns.delete(key);
      else for (const turn of [...turns.values()].flat()) turn.mayBeDeleted = true;
    }
  }

  /** Who brought this marker first. */
  ownerOf(marker: string): Identity | undefined {
    return this.#owners.get(marker);
  }

  #process(gateway: number): string {
    return `${gateway}.${this.#generation[gateway]!}`;
  }

  /** The ends of earlier requests that this one's messages begin with: before each answer. */
  #places(ask: Ask, identity: Identity): readonly Place[] {
    const { opening, messages } = historyOf(ask);
    const turns = this.#turns.get(keyOf(identity));
    const here = this.#process(ask.gateway);
    const isKnown = ({ knownTo }: Turn) => knownTo.has('store') || knownTo.has(here);
    return messages.flatMap((message, at) => {
      if (at === 0 || !isAssistant(message) || isAssistant(messages[at - 1]!)) return [];
      const sent = turns?.get(linkOf(opening, messages.slice(0, at))) ?? [];
      return [{ sent, known: sent.filter(isKnown) }];
    });
  }
}

/** The last turn that may have been answered with the mark: what came before it need not be remembered. */
function lastCut(places: readonly Place[]): number {
  return places.findLastIndex(({ known }) => known.some(({ isCutOff }) => isCutOff));
}

function keyOf({ tenant, user, name }: Identity): string {
  return JSON.stringify([tenant, user, name]);
}

function linkOf(opening: string, messages: readonly object[]): string {
  return JSON.stringify([opening, messages]);
}
