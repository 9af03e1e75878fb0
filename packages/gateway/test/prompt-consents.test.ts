import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createClient } from '@redis/client';
import type { ProgramText } from '@warmpath/core/internal';
import { RedisConversationStore } from '@warmpath/redis';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { LIMITS, SILENT } from '../../core/test/conformance/conversation-store.cases.js';
import { ConsentFile, ConsentRecords } from '../src/memory/consent-stores.js';
import { type ConsentStore, type PromptConsent, PromptConsents } from '../src/memory/prompt-consents.js';
import { closing } from './harness.js';
import { RedisServer } from './redis-server.js';

const FILE = 'prompt-consents.json';

const program = (id: string, text = 'Answer from the documents below.'): ProgramText => {
  return { id, role: 'user', segments: [text, 'Question:'], opens: true, closes: false, documents: 1 };
};

const consent = (tenant: string, kind: string, fields: Partial<PromptConsent> = {}): PromptConsent => {
  return { tenant, program: program(kind), state: 'allowed', labels: 'kept', ...fields };
};

let folder: string;
let failures: string[];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'warmpath-consents-'));
  failures = [];
});

afterEach(() => rm(folder, { recursive: true, force: true }));

async function open(store: ConsentStore | undefined, maxBytes = 65_536): Promise<PromptConsents> {
  const consents = new PromptConsents({ maxBytes, store, failed: ({ message }) => failures.push(message) });
  onTestFinished(() => consents.close());
  await consents.open();
  return consents;
}

describe('consents', () => {
  it('are those of one tenant, whatever it is called', async () => {
    const consents = await open(undefined);
    const names = ['acme', '__proto__', 'constructor', '', 'a\u0000b', '\ud800', 'acme,k', '["acme"'];
    for (const [at, tenant] of names.entries()) {
      await consents.set(consent(tenant, 'k', { state: at % 2 === 0 ? 'allowed' : 'refused' }));
    }
    for (const [at, tenant] of names.entries()) {
      expect(consents.of(tenant, 'k')).toMatchObject({ tenant, state: at % 2 === 0 ? 'allowed' : 'refused' });
      expect(consents.of(tenant, '__proto__')).toBeUndefined();
    }
    expect(consents.of('nobody', 'k')).toBeUndefined();
    await consents.forget('acme', 'k');
    expect([...consents.all()].map(({ tenant }) => tenant)).toEqual(names.slice(1));
    for (const tenant of names) await consents.forget(tenant, 'k');
    expect([[...consents.all()], consents.bytes]).toEqual([[], 0]);
  });

  it('replace the earlier one for the same kind, and tell listeners', async () => {
    const consents = await open(undefined);
    let changes = 0;
    consents.onChange(() => changes++);
    await consents.set(consent('acme', 'k'));
    await consents.set(consent('acme', 'k', { labels: 'mapped' }));
    expect([[...consents.all()].map(({ labels }) => labels), changes]).toEqual([['mapped'], 2]);
    await consents.forget('acme', 'other');
    expect(changes).toBe(2);
  });

  it('are refused beyond their bytes, and the others stay', async () => {
    const consents = await open(undefined, 2_000);
    await consents.set(consent('acme', 'small'));
    const large = consent('acme', 'large', { program: program('large', 'x'.repeat(1_000)) });
    await expect(consents.set(large)).rejects.toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', path: 'id' });
    expect([...consents.all()].map(({ program: { id } }) => id)).toEqual(['small']);
    await consents.set(consent('acme', 'small', { state: 'refused' }));
    expect(consents.of('acme', 'small')?.state).toBe('refused');
  });
});

let server: RedisServer;
let stores = 0;

beforeAll(async () => {
  server = await RedisServer.start();
});

afterAll(() => server.close());

/** The store of a gateway that shares it with others of the same prefix. */
async function openShared(prefix: string, url = server.url): Promise<ConsentStore> {
  const store = closing(new RedisConversationStore({ url, prefix, timeoutMs: 20_000, memory: LIMITS }));
  await store.open(SILENT);
  return new ConsentRecords(store.records);
}

/** Ways to share consents: each call is another gateway. */
const SHARED: Readonly<Record<string, () => () => Promise<ConsentStore>>> = {
  'the state folder': () => async () => new ConsentFile(folder),
  'the shared server': () => {
    const prefix = `consents${++stores}:`;
    return () => openShared(prefix);
  },
};

const idsOf = (consents: PromptConsents) => Array.from(consents.all(), ({ program: { id } }) => id).toSorted();

describe.each(Object.entries(SHARED))('gateways that share %s', (_, share) => {
  it('have the same consents, and after a restart again', async () => {
    const newStore = share();
    const [here, there] = [await open(await newStore()), await open(await newStore())];
    await here.set(consent('acme', 'one'));
    await here.set(consent('acme', 'one', { labels: 'mapped' }));
    await here.set(consent('über "acme"\n', 'one', { program: program('one', '文書 "\u2028" \u0000 👩‍🚀') }));
    await expect.poll(() => new Set(there.all())).toEqual(new Set(here.all()));
    await there.set(consent('acme', 'two', { state: 'refused' }));
    await there.forget('acme', 'one');
    await expect.poll(() => idsOf(here)).toEqual(['one', 'two']);
    const restarted = await open(await newStore());
    expect(new Set(restarted.all())).toEqual(new Set(there.all()));
    expect(failures).toEqual([]);
  });

  it('lose none that are given at the same time', async () => {
    const newStore = share();
    const [here, there] = [await open(await newStore()), await open(await newStore())];
    const ids = Array.from({ length: 20 }, (_, i) => `kind-${i + 10}`);
    await Promise.all(ids.slice(0, 10).map((id) => here.set(consent('acme', id))));
    await Promise.all(ids.slice(10).map((id) => there.set(consent('acme', id))));
    await expect.poll(() => [idsOf(here), idsOf(there)]).toEqual([ids, ids]);
  });
});

describe('consents in the shared server', () => {
  const records = async (...prefixes: string[]) => {
    const client = createClient({ url: server.url, RESP: 2 });
    client.on('error', () => {});
    await client.connect();
    onTestFinished(() => client.destroy());
    return { client, keys: prefixes.map((prefix) => `${prefix}consents`) };
  };

  it('are none where other programs wrote them', async () => {
    const prefix = `consents${++stores}:`;
    const { client, keys } = await records(prefix);
    const stray = JSON.stringify(consent('acme', 'stray'));
    for (const [field, value] of [
      ['a', stray],
      ['b', 'no JSON'],
      ['c', '{}'],
      ['version', '1'],
    ] as const) {
      await client.sendCommand(['HSET', keys[0]!, field, value]);
    }
    const consents = await open(await openShared(prefix));
    expect([...consents.all()]).toEqual([]);
    await consents.set(consent('acme', 'one'));
    expect(idsOf(await open(await openShared(prefix)))).toEqual(['one']);
    expect(failures).toEqual([]);
  });

  it('are written again where the server lost its data', async () => {
    const prefix = `consents${++stores}:`;
    const [here, there] = [await open(await openShared(prefix)), await open(await openShared(prefix))];
    await here.set(consent('acme', 'one'));
    await expect.poll(() => idsOf(there)).toEqual(['one']);
    const { client, keys } = await records(prefix);
    await client.sendCommand(['DEL', keys[0]!]);
    await expect.poll(() => client.sendCommand(['HLEN', keys[0]!])).toBe(2);
    expect(idsOf(await open(await openShared(prefix)))).toEqual(['one']);
    expect([idsOf(here), idsOf(there)]).toEqual([['one'], ['one']]);
  });

  it('are not given while the server is away; those that there were still count', async () => {
    const own = closing(await RedisServer.start());
    const consents = await open(await openShared('consents:', own.url));
    await consents.set(consent('acme', 'one'));
    await own.kill();
    await expect.poll(() => failures).toHaveLength(1);
    const refused = { code: 'WARMPATH_STORE_UNAVAILABLE' };
    await expect(consents.set(consent('acme', 'two'))).rejects.toMatchObject(refused);
    await expect(consents.forget('acme', 'one')).rejects.toMatchObject(refused);
    expect(idsOf(consents)).toEqual(['one']);
    await own.restart();
    await expect
      .poll(() =>
        consents.set(consent('acme', 'three')).then(
          () => idsOf(consents),
          () => [],
        ),
      )
      .toEqual(['one', 'three']);
  });
});

describe('consents in the state folder', () => {
  it('survive a restart, in a file of this user alone', async () => {
    const state = join(folder, 'made', 'when needed');
    const first = await open(new ConsentFile(state));
    await first.set(consent('acme', 'one'));
    await first.set(consent('acme', 'two', { state: 'refused', labels: 'mapped' }));
    await first.set(consent('other', 'one'));
    await first.forget('other', 'one');
    const second = await open(new ConsentFile(state));
    expect([...second.all()]).toEqual([...first.all()]);
    expect((await stat(join(state, FILE))).mode & 0o777).toBe(0o600);
    expect((await stat(state)).mode & 0o777).toBe(0o700);
    expect(await readdir(state)).toEqual([FILE]);
    expect(failures).toEqual([]);
  });

  const whole = { format: 'warmpath-prompt-consents', version: 1, consents: [consent('acme', 'one')] };
  it.each([
    ['nothing', ''],
    ['half a file', JSON.stringify(whole).slice(0, 200)],
    ['no JSON', '\u0000\u0001'],
    ['another version', JSON.stringify({ ...whole, version: 2 })],
    ['another value', '[]'],
    ['a consent without a program', JSON.stringify({ ...whole, consents: [{ tenant: 'acme' }] })],
    [
      'documents where there is no place',
      JSON.stringify({
        ...whole,
        consents: [consent('acme', 'one', { program: { ...program('one'), documents: 3 } })],
      }),
    ],
  ])('are none where the file holds %s; the next consent sets the file aside', async (_, text) => {
    await writeFile(join(folder, FILE), text);
    const consents = await open(new ConsentFile(folder));
    expect([...consents.all()]).toEqual([]);
    expect(failures).toEqual([expect.stringContaining('damaged')]);
    await consents.set(consent('acme', 'two'));
    expect(await readFile(join(folder, `${FILE}.damaged`), 'utf8')).toBe(text);
    const again = await open(new ConsentFile(folder));
    expect([...again.all()].map(({ program: { id } }) => id)).toEqual(['two']);
    expect(failures).toHaveLength(1);
  });

  it('are not given where they cannot be written', async () => {
    await writeFile(join(folder, 'file'), '');
    const consents = await open(new ConsentFile(join(folder, 'file')));
    expect(failures).toEqual([expect.stringContaining('not a folder')]);
    await expect(consents.set(consent('acme', 'one'))).rejects.toMatchObject({ code: 'WARMPATH_STATE_FOLDER' });
    expect([...consents.all()]).toEqual([]);
  });

  it('stay as they are when the file is damaged later', async () => {
    const consents = await open(new ConsentFile(folder));
    await consents.set(consent('acme', 'one'));
    await writeFile(join(folder, FILE), 'damaged');
    await expect.poll(() => failures).toHaveLength(1);
    expect(consents.of('acme', 'one')?.state).toBe('allowed');
  });
});
