import { randomUUID } from 'node:crypto';
import { WarmpathError } from '@warmpath/core';
import { TenantCache } from '@warmpath/core/internal';
import { applyEdits, type BodyView } from '../json/json-body.js';
import { isObject, type JsonObject, parseJson } from '../json/json-scanner.js';

/** Who asks for a response. */
export interface ResponseOwner {
  readonly tenant: string;
  readonly user: string | undefined;
}

/** A response that the gateway made of chat completions, for requests that continue it by its id. */
interface StoredResponse {
  readonly user: string | undefined;
  /** The elements of the request's input, as JSON. */
  readonly input: string;
  readonly previous: string | undefined;
  readonly response: JsonObject;
  readonly storedAt: number;
}

export interface StoredResponsesOptions {
  readonly maxBytes: number;
  /** Characters of all items that one request continues or refers to. */
  readonly maxContinued: number;
  /** Milliseconds until a response is forgotten. */
  readonly maxAgeMs: number;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/** A request with all items that it continues, and how its response is to be stored. */
export interface ContinuedRequest {
  readonly body: Buffer;
  /** The id of the response, if the client wants it stored, and what it continues. */
  readonly stored: { readonly id: string | undefined; readonly previousId: string | undefined };
  /** The response as JSON is complete. */
  readonly store: (response: string) => void;
}

/** `msg_<response>_0`: the name of an item holds that of its response. */
const ITEM_ID = /^[a-z]+_(.+)_\d+$/;

/**
 * Responses by id, each for its tenant and end user. Bounded in bytes and in age. They are kept in this process only: a
 * request that continues a forgotten one is refused, and sends its items whole.
 */
export class StoredResponses {
  readonly #options: StoredResponsesOptions;
  readonly #responses: TenantCache<StoredResponse>;

  constructor(options: StoredResponsesOptions) {
    this.#options = options;
    this.#responses = new TenantCache(options.maxBytes);
  }

  get bytes(): number {
    return this.#responses.bytes;
  }

  /**
   * The request with the items of `previous_response_id` and of `item_reference` items in place of these. What is not
   * known stays. O(items).
   *
   * @throws WarmpathError `WARMPATH_BODY_TOO_COMPLEX`, `WARMPATH_BODY_TOO_LARGE`
   */
  continued(view: BodyView, owner: ResponseOwner): ContinuedRequest {
    const previous = view.string('previous_response_id');
    const room = new Room(this.#options.maxContinued);
    const before = previous === undefined ? [] : this.#itemsUpTo(previous, owner, room);
    const own = this.#ownItems(view, owner, room);
    const isKnown = before !== undefined && own !== undefined;
    const isContinued = isKnown && (before.length > 0 || own.isChanged);
    const edits = isContinued
      ? [
          view.with('input', `[${[...before, ...own.items].join()}]`),
          ...view.without(new Set(['previous_response_id'])),
        ]
      : [];
    const isStored = view.raw('store') !== 'false' && isKnown;
    return {
      body: applyEdits(view.bytes, edits),
      stored: { id: isStored ? randomUUID().replaceAll('-', '') : undefined, previousId: previous },
      store: (response) => {
        if (isStored) this.#set(owner, { input: own.items.join(), previous, response });
      },
    };
  }

  /** A response of this owner. @param user `any`: the caller chooses its end users itself. */
  find(id: string, { tenant, user }: ResponseOwner, anyUser = false): JsonObject | undefined {
    return this.#get(id, { tenant, user }, anyUser)?.response;
  }

  /** @returns whether there was one. */
  delete(id: string, owner: ResponseOwner, anyUser = false): boolean {
    if (this.#get(id, owner, anyUser) === undefined) return false;
    this.#responses.take(owner.tenant, id);
    return true;
  }

  #get(id: string, { tenant, user }: ResponseOwner, anyUser = false): StoredResponse | undefined {
    const found = this.#responses.get(tenant, id);
    if (found === undefined || !(anyUser || found.user === user)) return undefined;
    if (this.#options.now() - found.storedAt <= this.#options.maxAgeMs) return found;
    this.#responses.take(tenant, id);
    return undefined;
  }

  #set(
    { tenant, user }: ResponseOwner,
    {
      response: json,
      ...stored
    }: { readonly input: string; readonly previous: string | undefined; readonly response: string },
  ): void {
    const response = parseJson(json) as JsonObject;
    const bytes = Buffer.byteLength(stored.input) + Buffer.byteLength(json);
    const entry = { ...stored, user, response, storedAt: this.#options.now() };
    this.#responses.set(tenant, String(response['id']), entry, bytes, user);
  }

  /** Items of a response and of all that it continues, as JSON; `undefined` where one is not known. */
  #itemsUpTo(id: string, owner: ResponseOwner, room: Room): readonly string[] | undefined {
    const turns: string[][] = [];
    for (let next: string | undefined = id; next !== undefined; ) {
      const found: StoredResponse | undefined = this.#get(next, owner);
      if (found === undefined) return undefined;
      const output = (found.response['output'] as readonly unknown[]).map((item) => JSON.stringify(item));
      const items = [...(found.input === '' ? [] : [found.input]), ...output];
      for (const item of items) room.take(item);
      turns.push(items);
      next = found.previous;
    }
    return turns.reverse().flat();
  }

  /** The items of the request itself; `undefined` where one refers to an item that is not known. */
  #ownItems(
    view: BodyView,
    owner: ResponseOwner,
    room: Room,
  ): { items: readonly string[]; isChanged: boolean } | undefined {
    const span = view.value('input');
    if (span === undefined) return { items: [], isChanged: false };
    if (view.scan.isString(span))
      return { items: [`{"role":"user","content":${view.scan.text(span)}}`], isChanged: false };
    if (!view.scan.isArray(span)) return undefined;
    const isReferring = view.bytes.includes('"item_reference"');
    let isChanged = false;
    const items: string[] = [];
    for (const element of view.scan.elements(span.start)) {
      const item = isReferring ? view.scan.parse(element) : undefined;
      const refers = isObject(item) && item['type'] === 'item_reference';
      const found = refers ? this.#item(String(item['id']), owner) : undefined;
      if (refers && found === undefined) return undefined;
      if (found !== undefined) room.take(found);
      isChanged ||= refers;
      items.push(found ?? view.scan.text(element));
    }
    return { items, isChanged };
  }

  #item(id: string, owner: ResponseOwner): string | undefined {
    const response = this.#get(`resp_${ITEM_ID.exec(id)?.[1] ?? ''}`, owner)?.response;
    const item = (response?.['output'] as readonly JsonObject[] | undefined)?.find((it) => it['id'] === id);
    return item && JSON.stringify(item);
  }
}

/** What a request may still add to itself: it can refer to one long item many times. */
class Room {
  #left: number;

  constructor(characters: number) {
    this.#left = characters;
  }

  /** @throws WarmpathError `WARMPATH_BODY_TOO_LARGE` */
  take(item: string): void {
    this.#left -= item.length;
    if (this.#left >= 0) return;
    throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', {
      detail: 'The stored items that the request continues are longer than a request may be.',
    });
  }
}
