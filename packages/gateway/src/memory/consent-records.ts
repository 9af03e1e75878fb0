import { hash } from 'node:crypto';
import type { SharedRecords } from '@warmpath/core/internal';
import { type ConsentStore, type PromptConsent, promptConsent } from './prompt-consents.js';

/** Consents in the server that several gateways share. Records that no gateway wrote are passed over. */
export class ConsentRecords implements ConsentStore {
  readonly #records: SharedRecords;

  constructor(records: SharedRecords) {
    this.#records = records;
  }

  async read(): Promise<readonly PromptConsent[] | undefined> {
    const records = await this.#records.read();
    return records && [...records].flatMap(([key, record]) => readConsent(key, record));
  }

  write(tenant: string, kind: string, consent: PromptConsent | undefined): Promise<void> {
    return this.#records.write(keyOf(tenant, kind), consent && JSON.stringify(consent));
  }
}

function keyOf(tenant: string, kind: string): string {
  return hash('sha256', JSON.stringify([tenant, kind]));
}

function readConsent(key: string, record: string): readonly PromptConsent[] {
  try {
    const consent = promptConsent.parse(JSON.parse(record));
    return keyOf(consent.tenant, consent.program.id) === key ? [consent] : [];
  } catch {
    return [];
  }
}
