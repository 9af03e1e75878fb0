import { WarmpathError } from '@warmpath/core';
import type { ProgramText } from '@warmpath/core/internal';
import { z } from 'zod';

/** A person's decision about a prompt kind of a tenant. */
export interface PromptConsent {
  readonly tenant: string;
  readonly program: ProgramText;
  readonly state: 'allowed' | 'refused';
  /** Whether documents keep their labels, or get stable ones that are mapped back in the answer. */
  readonly labels: 'kept' | 'mapped';
}

/** A consent as a store holds it. */
export const promptConsent: z.ZodType<PromptConsent> = z.object({
  tenant: z.string().min(1),
  program: z
    .object({
      id: z.string().min(1),
      role: z.enum(['system', 'user', 'tool', 'assistant']),
      segments: z.array(z.string().min(1)).min(1),
      opens: z.boolean(),
      closes: z.boolean(),
      documents: z.int().min(0),
    })
    .refine(({ documents, segments }) => documents <= segments.length),
  state: z.enum(['allowed', 'refused']),
  labels: z.enum(['kept', 'mapped']),
});

/** Where consents survive a restart, and from where other gateways read them. */
export interface ConsentStore {
  /**
   * All consents; `undefined` if nothing changed since the last call.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`
   */
  read(): Promise<readonly PromptConsent[] | undefined>;
  /**
   * Writes the consent for a kind of a tenant, or removes it if `consent` is `undefined`.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`
   */
  write(tenant: string, kind: string, consent: PromptConsent | undefined): Promise<void>;
}

/** Milliseconds between two looks at what other gateways wrote. */
const POLL_MS = 500;
/** Estimated bytes of a consent beside its texts. */
const CONSENT_BYTES = 256;

/** The consents of all tenants. Reads the store twice a second: what one gateway writes, the others follow. */
export class PromptConsents {
  readonly #maxBytes: number;
  readonly #store: ConsentStore | undefined;
  readonly #failed: (error: WarmpathError) => void;
  readonly #listeners: (() => void)[] = [];
  readonly #tenants = new Map<string, Map<string, PromptConsent>>();
  #bytes = 0;
  #polling: NodeJS.Timeout | undefined;
  #isPolling = false;
  /** Why the last read failed, so that a store that stays away is one line in the log. */
  #failure: string | undefined;

  /** @param failed called when the store cannot be read, once for each reason */
  constructor({
    maxBytes,
    store,
    failed,
  }: {
    readonly maxBytes: number;
    readonly store: ConsentStore | undefined;
    readonly failed: (error: WarmpathError) => void;
  }) {
    this.#maxBytes = maxBytes;
    this.#store = store;
    this.#failed = failed;
  }

  /** Estimated bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether consents survive a restart. */
  get isStored(): boolean {
    return this.#store !== undefined;
  }

  of(tenant: string, kind: string): PromptConsent | undefined {
    return this.#tenants.get(tenant)?.get(kind);
  }

  *all(): Iterable<PromptConsent> {
    for (const kinds of this.#tenants.values()) yield* kinds.values();
  }

  /** Called after each change, by this gateway or another one. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Reads the store, and follows it from then on. */
  async open(): Promise<void> {
    if (this.#store === undefined) return;
    await this.#poll();
    this.#polling = setInterval(() => void this.#poll(), POLL_MS).unref();
  }

  close(): void {
    clearInterval(this.#polling);
  }

  /**
   * Stores a consent. It counts at once.
   *
   * @throws WarmpathError `WARMPATH_INVALID_REQUEST` beyond `maxBytes`; `WARMPATH_STORE_UNAVAILABLE`
   */
  async set(consent: PromptConsent): Promise<void> {
    const { tenant, program } = consent;
    const known = this.of(tenant, program.id);
    if (this.#bytes - bytesOf(known) + bytesOf(consent) > this.#maxBytes) {
      const detail = `The list of consents is full: it holds at most ${this.#maxBytes} bytes. Set another kind to \`asking\` first.`;
      throw new WarmpathError('WARMPATH_INVALID_REQUEST', { path: 'id', detail });
    }
    await this.#store?.write(tenant, program.id, consent);
    this.#put(consent);
    this.#changed();
  }

  /**
   * Removes a consent. An unknown one is no error.
   *
   * @throws WarmpathError `WARMPATH_STORE_UNAVAILABLE`
   */
  async forget(tenant: string, kind: string): Promise<void> {
    if (this.of(tenant, kind) === undefined) return;
    await this.#store?.write(tenant, kind, undefined);
    this.#remove(tenant, kind);
    this.#changed();
  }

  async #poll(): Promise<void> {
    if (this.#isPolling) return;
    this.#isPolling = true;
    try {
      const consents = await this.#store!.read();
      this.#failure = undefined;
      if (consents !== undefined) this.#replace(consents);
    } catch (error) {
      const known = WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
      if (known.message !== this.#failure) this.#failed(known);
      this.#failure = known.message;
    } finally {
      this.#isPolling = false;
    }
  }

  #replace(consents: readonly PromptConsent[]): void {
    this.#tenants.clear();
    this.#bytes = 0;
    for (const consent of consents) {
      if (this.#bytes + bytesOf(consent) <= this.#maxBytes) this.#put(consent);
    }
    this.#changed();
  }

  #put(consent: PromptConsent): void {
    const { tenant, program } = consent;
    this.#remove(tenant, program.id);
    const kinds = this.#tenants.get(tenant) ?? new Map<string, PromptConsent>();
    this.#tenants.set(tenant, kinds.set(program.id, consent));
    this.#bytes += bytesOf(consent);
  }

  #remove(tenant: string, kind: string): void {
    const kinds = this.#tenants.get(tenant);
    this.#bytes -= bytesOf(kinds?.get(kind));
    if (kinds?.delete(kind) === true && kinds.size === 0) this.#tenants.delete(tenant);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

function bytesOf(consent: PromptConsent | undefined): number {
  if (consent === undefined) return 0;
  const { tenant, program } = consent;
  const characters = program.segments.reduce((sum, { length }) => sum + length, tenant.length + program.id.length);
  return CONSENT_BYTES + 2 * characters;
}
