import { hash, randomBytes } from 'node:crypto';
import { mkdir, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { fileErrorReason, type SharedRecords } from '@warmpath/core/internal';
import { z } from 'zod';
import { type ConsentStore, type PromptConsent, promptConsent } from './prompt-consents.js';

const FILE_NAME = 'prompt-consents.json';
const OWNER_ONLY = 0o600;
const OWNER_ONLY_FOLDER = 0o700;

const contents = z.object({
  format: z.literal('warmpath-prompt-consents'),
  version: z.literal(1),
  consents: z.array(promptConsent),
});

/**
 * Consents in one file of the state folder. Several gateways may use the folder. The file is replaced as a whole, so it
 * is never half written.
 */
export class ConsentFile implements ConsentStore {
  readonly #folder: string;
  readonly #path: string;
  /** Size and time of the file as read last; `undefined` before the first read. */
  #seen: string | undefined;
  /** Reads and writes go one after the other. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(folder: string) {
    this.#folder = folder;
    this.#path = join(folder, FILE_NAME);
  }

  read(): Promise<readonly PromptConsent[] | undefined> {
    return this.#inTurn(async () => {
      const version = await this.#version();
      if (version === this.#seen) return undefined;
      const consents = version === '' ? [] : await this.#load();
      this.#seen = version;
      return consents;
    });
  }

  write(tenant: string, kind: string, consent: PromptConsent | undefined): Promise<void> {
    return this.#inTurn(async () => {
      await mkdir(this.#folder, { recursive: true, mode: OWNER_ONLY_FOLDER });
      const others = (await this.#known()).filter((each) => each.tenant !== tenant || each.program.id !== kind);
      await this.#replace(consent === undefined ? others : [...others, consent]);
    });
  }

  async #inTurn<Value>(work: () => Promise<Value>): Promise<Value> {
    const turn = this.#last.then(work);
    this.#last = turn.catch(() => {});
    try {
      return await turn;
    } catch (cause) {
      if (WarmpathError.isInstance(cause)) throw cause;
      const detail = `${FILE_NAME}: ${fileErrorReason(cause)}.`;
      throw new WarmpathError('WARMPATH_STATE_FOLDER', { detail, cause });
    }
  }

  /** Empty for a file that is not there. */
  async #version(): Promise<string> {
    try {
      const { ino, size, mtimeMs } = await stat(this.#path);
      return [ino, size, mtimeMs].join();
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
      throw error;
    }
  }

  async #load(): Promise<readonly PromptConsent[]> {
    const text = await readFile(this.#path, 'utf8');
    try {
      return contents.parse(JSON.parse(text)).consents;
    } catch (cause) {
      const detail = `${FILE_NAME} is damaged, or of another version. Its consents do not count.`;
      throw new WarmpathError('WARMPATH_STATE_FOLDER', { detail, cause });
    }
  }

  /** What the file holds. A damaged file is set aside under another name. */
  async #known(): Promise<readonly PromptConsent[]> {
    if ((await this.#version()) === '') return [];
    try {
      return await this.#load();
    } catch (error) {
      if (!WarmpathError.isInstance(error)) throw error;
      await rename(this.#path, `${this.#path}.damaged`);
      return [];
    }
  }

  async #replace(consents: readonly PromptConsent[]): Promise<void> {
    const draft = `${this.#path}.${randomBytes(6).toString('hex')}`;
    try {
      const handle = await open(draft, 'wx', OWNER_ONLY);
      try {
        await handle.writeFile(`${JSON.stringify({ format: 'warmpath-prompt-consents', version: 1, consents })}\n`);
        await handle.sync();
      } finally {
        await handle.close();
      }
      await rename(draft, this.#path);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  }
}

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
