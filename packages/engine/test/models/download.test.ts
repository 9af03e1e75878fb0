import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { writeGguf } from '../../bench/random-model/src/gguf-writer.js';
import { type DownloadOptions, download as downloadFile, type ModelProgress } from '../../src/models/download.js';
import { hubFilePath, parseHubReference, parseHubUrl } from '../../src/models/model-name.js';
import { hubFile } from '../../src/models/resolve.js';
import { FakeHub } from './hub-server.js';

const REFERENCE = parseHubReference('org/repo/model.gguf');
const TOKEN = 'hf_secret';

let folder: string;
let hub: FakeHub;
let events: ModelProgress[];
let path: string;

beforeEach(async () => {
  vi.stubEnv('no_proxy', '127.0.0.1');
  folder = await mkdtemp(join(tmpdir(), 'warmpath-hub-'));
  hub = new FakeHub(await sampleModel(1));
  await hub.start();
  events = [];
  path = hubFilePath(REFERENCE, folder);
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await hub.stop();
  await rm(folder, { recursive: true, force: true });
});

/** About 400 KB, so that it comes in several chunks. */
async function sampleModel(seed: number): Promise<Buffer> {
  const file = join(folder, `sample-${seed}.gguf`);
  const weights = Float32Array.from({ length: 100_000 }, (_, index) => (index * seed) % 977);
  await writeGguf(file, new Map(), [{ name: 'a', type: 'f32', shape: [weights.length], weights: [weights] }]);
  const bytes = await readFile(file);
  await rm(file);
  return bytes;
}

function download(options: DownloadOptions & { hubUrl?: URL; token?: string | undefined } = {}): Promise<string> {
  const { hubUrl = new URL(hub.url), token, ...others } = options;
  const file = hubFile(REFERENCE, { cacheDir: folder, hubUrl, token });
  return downloadFile(file, { firstDelayMs: 0, onProgress: (event) => events.push(event), ...others });
}

async function failure(work: Promise<unknown>): Promise<WarmpathError> {
  const error: unknown = await work.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  if (!WarmpathError.isInstance(error)) throw new Error('no WarmpathError was raised', { cause: error });
  return error;
}

// Comparing the bytes themselves: the matchers walk a buffer element by element.
const isWhole = async () => (await readFile(path)).equals(hub.behaviour.content);
const filesLeft = () => readdir(dirname(path)).then((files) => files.sort());
const retries = () => events.filter((event) => event.kind === 'retry').map(({ reason }) => reason);

describe('a download that goes well', () => {
  it('follows the redirect, gives the bytes their name, and leaves nothing else', async () => {
    expect(await download()).toBe(path);
    expect(await isWhole()).toBe(true);
    expect(await filesLeft()).toStrictEqual(['model.gguf']);
    expect(hub.requests.map(({ server, path: asked, status }) => [server, asked, status])).toStrictEqual([
      ['hub', '/org/repo/resolve/main/model.gguf', 302],
      ['storage', '/blob?signature=secret', 200],
    ]);
  });

  it('reports bytes from none to all, then the verification', async () => {
    await download();
    const total = hub.behaviour.content.length;
    const arriving = events.filter((event) => event.kind === 'download');
    const counts = arriving.map(({ bytes }) => bytes);
    expect(counts[0]).toBe(0);
    expect(counts.at(-1)).toBe(total);
    expect(counts).toStrictEqual(counts.toSorted((a, b) => a - b));
    expect(new Set(arriving.map(({ totalBytes }) => totalBytes))).toStrictEqual(new Set([total]));
    expect(events.at(-1)).toStrictEqual({
      kind: 'verify',
      name: 'hf:org/repo/model.gguf',
      bytes: total,
      totalBytes: total,
    });
  });

  it('sends the token to the hub and not to the host that it redirects to', async () => {
    await download({ token: TOKEN });
    expect(hub.requests.map(({ server, authorization }) => [server, authorization])).toStrictEqual([
      ['hub', `Bearer ${TOKEN}`],
      ['storage', undefined],
    ]);
  });

  it('keeps the token on redirects within the hub', async () => {
    hub.behaviour.hubAnswers.push({ status: 307, headers: { location: '/renamed/repo/resolve/main/model.gguf' } });
    await download({ token: TOKEN });
    expect(hub.requests.map(({ path: asked, authorization }) => [asked.split('?')[0], authorization])).toStrictEqual([
      ['/org/repo/resolve/main/model.gguf', `Bearer ${TOKEN}`],
      ['/renamed/repo/resolve/main/model.gguf', `Bearer ${TOKEN}`],
      ['/blob', undefined],
    ]);
  });

  it('asks nobody when the file is there', async () => {
    await download();
    hub.requests.length = 0;
    expect(await download()).toBe(path);
    expect(hub.requests).toStrictEqual([]);
  });

  it('fetches again what is there but damaged', async () => {
    await download();
    await writeFile(path, Buffer.alloc(1000));
    await download();
    expect(await isWhole()).toBe(true);
  });

  it('asks below the path of the address that the hub is given', async () => {
    await download({ hubUrl: new URL(`${hub.url}/mirror/hf/`) });
    expect(hub.requests[0]!.path).toBe('/mirror/hf/org/repo/resolve/main/model.gguf');
  });

  it('asks for a revision and a folder, and keeps them apart in the cache', async () => {
    const reference = parseHubReference('org/repo@refs%2Fpr%2F1/q8 files/model.gguf');
    const target = await downloadFile(hubFile(reference, { cacheDir: folder, hubUrl: new URL(hub.url) }), {});
    expect(hub.requests[0]!.path).toBe('/org/repo/resolve/refs%2Fpr%2F1/q8%20files/model.gguf');
    expect(target).toBe(join(folder, 'hub', 'org--repo', 'refs%2Fpr%2F1', 'q8 files', 'model.gguf'));
  });

  it('needs no length, where the server sends none', async () => {
    hub.behaviour.chunked = true;
    await download();
    expect(await isWhole()).toBe(true);
  });
});

describe('a connection that breaks', () => {
  it('goes on where it broke, if the entity tag is the same', async () => {
    hub.behaviour.cuts = [100_000, 150_000];
    await download();
    expect(await isWhole()).toBe(true);
    expect(hub.transfers.map(({ range, status }) => [range, status])).toStrictEqual([
      [undefined, 200],
      ['bytes=100000-', 206],
      ['bytes=250000-', 206],
    ]);
    expect(retries()).toHaveLength(2);
  });

  it('goes on by the name that the hub gives the content, where the storage host gives none', async () => {
    hub.behaviour.etag = null;
    hub.behaviour.cuts = [100_000];
    await download();
    expect(await isWhole()).toBe(true);
    expect(hub.transfers.at(-1)).toMatchObject({ range: 'bytes=100000-', status: 206 });
  });

  it('starts over where nobody names the content', async () => {
    hub.behaviour.etag = null;
    hub.behaviour.linkedEtag = null;
    hub.behaviour.cuts = [100_000];
    await download();
    expect(await isWhole()).toBe(true);
    expect(hub.transfers.at(-1)).toMatchObject({ range: undefined, status: 200 });
  });

  it('starts over where the entity tag is weak', async () => {
    hub.behaviour.etag = 'W/"storage-1"';
    hub.behaviour.linkedEtag = null;
    hub.behaviour.cuts = [100_000];
    await download();
    expect(await isWhole()).toBe(true);
    expect(hub.transfers.at(-1)).toMatchObject({ range: undefined, status: 200 });
  });

  it('starts over where the server does not do ranges', async () => {
    hub.behaviour.ignoreRanges = true;
    hub.behaviour.cuts = [100_000];
    await download();
    expect(await isWhole()).toBe(true);
  });

  it('gives up after five failures in a row without a byte gained, keeps the part, and a later call goes on', async () => {
    hub.behaviour.cuts = [120_000, 0, 0, 0, 0];
    const error = await failure(download());
    expect(error).toMatchObject({ code: 'WARMPATH_DOWNLOAD_FAILED', path: 'hf:org/repo/model.gguf' });
    expect(error.message).toContain('5 failures in a row');
    expect(hub.transfers).toHaveLength(5);
    expect(await filesLeft()).toStrictEqual(['model.gguf.partial', 'model.gguf.partial.json']);
    await download();
    expect(hub.transfers.at(-1)).toMatchObject({ range: 'bytes=120000-', status: 206 });
    expect(await isWhole()).toBe(true);
  });

  it('never gives up while every try gains bytes', async () => {
    hub.behaviour.cuts = Array.from({ length: 12 }, () => 30_000);
    await download();
    expect(hub.transfers).toHaveLength(13);
    expect(await isWhole()).toBe(true);
  });

  it('tells when nobody listens at all', async () => {
    await hub.stop();
    const error = await failure(download());
    expect(error.message).toContain('ECONNREFUSED');
    expect(retries()).toHaveLength(4);
    await hub.start();
  });

  it('doubles its pauses, and keeps to what the server asks for', async () => {
    hub.behaviour.hubAnswers = [
      { status: 503 },
      { status: 500 },
      { status: 502 },
      { status: 429, headers: { 'retry-after': '0' } },
    ];
    await download({ firstDelayMs: 1 });
    expect(events.filter((event) => event.kind === 'retry').map(({ delayMs }) => delayMs)).toStrictEqual([1, 2, 4, 0]);
  });
});

describe('content that changes', () => {
  it('starts over when the storage host has another entity tag on the next call', async () => {
    hub.behaviour.linkedEtag = null;
    hub.behaviour.cuts = [120_000, 0, 0, 0, 0];
    await failure(download());
    hub.behaviour.content = await sampleModel(2);
    hub.behaviour.etag = '"storage-2"';
    await download();
    expect(hub.transfers.slice(5).map(({ status }) => status)).toStrictEqual([206, 200]);
    expect(await isWhole()).toBe(true);
  });

  it('starts over when the hub names another content', async () => {
    hub.behaviour.cuts = [120_000, 0, 0, 0, 0];
    await failure(download());
    hub.behaviour.content = await sampleModel(2);
    await download();
    expect(hub.transfers.slice(5).map(({ range, status }) => [range, status])).toStrictEqual([
      ['bytes=120000-', 206],
      [undefined, 200],
    ]);
    expect(await isWhole()).toBe(true);
  });

  it('notices a server that starts at another byte than asked', async () => {
    hub.behaviour.cuts = [120_000];
    hub.behaviour.rangeShift = 10;
    hub.behaviour.linkedEtag = null;
    await download();
    expect(hub.transfers.map(({ status }) => status)).toStrictEqual([200, 206, 200]);
    expect(await isWhole()).toBe(true);
  });

  it('notices a server that continues another file all the same', async () => {
    hub.behaviour.linkedEtag = null;
    hub.behaviour.cuts = [120_000];
    hub.behaviour.onTransfer = () => {
      hub.behaviour.etag = '"storage-2"';
    };
    await download();
    expect(hub.transfers.map(({ status }) => status)).toStrictEqual([200, 206, 200]);
    expect(retries()).toContain('the server continued another file than the one begun');
    expect(await isWhole()).toBe(true);
  });

  it('starts over when the part is longer than the file has become', async () => {
    hub.behaviour.linkedEtag = null;
    hub.behaviour.cuts = [120_000, 0, 0, 0, 0];
    await failure(download());
    const whole = hub.behaviour.content;
    hub.behaviour.content = whole.subarray(0, 1000);
    hub.behaviour.onTransfer = () => {
      hub.behaviour.content = whole;
    };
    await download();
    expect(hub.transfers.slice(5).map(({ status }) => status)).toStrictEqual([416, 200]);
  });
});

describe('content that is wrong', () => {
  it('is given up, and asked for again by no retry, when its SHA-256 is not the one that the hub names', async () => {
    hub.behaviour.linkedEtag = 'a'.repeat(64);
    const error = await failure(download());
    expect(error).toMatchObject({ code: 'WARMPATH_DOWNLOAD_FAILED' });
    expect(error.message).toContain('SHA-256');
    expect(hub.transfers.map(({ status }) => status)).toStrictEqual([200]);
    expect(await filesLeft()).toStrictEqual([]);
  });

  it('needs no SHA-256 where the hub names another kind of tag', async () => {
    hub.behaviour.linkedEtag = 'b'.repeat(40);
    await download();
    expect(events.some(({ kind }) => kind === 'verify')).toBe(false);
  });

  it('is not taken when the hub and the storage host disagree on its length', async () => {
    hub.behaviour.linkedSize = hub.behaviour.content.length + 1;
    const error = await failure(download());
    expect(error.message).toContain(`of ${hub.behaviour.content.length + 1} bytes`);
    expect(await filesLeft()).not.toContain('model.gguf');
  });

  it('is not taken when more comes than was announced', async () => {
    hub.behaviour.chunked = true;
    hub.behaviour.linkedSize = 1000;
    expect((await failure(download())).message).toContain('more than the 1000 bytes');
  });

  it('is not taken when less comes than was announced', async () => {
    hub.behaviour.chunked = true;
    hub.behaviour.linkedSize = hub.behaviour.content.length + 1;
    expect((await failure(download())).message).toContain('the connection ended after');
  });

  it('is not taken, nor asked for again, when it is no GGUF file', async () => {
    hub.behaviour.content = Buffer.from('<!doctype html><title>Sign in</title>');
    const error = await failure(download());
    expect(error).toMatchObject({ code: 'WARMPATH_MODEL_FILE', path: 'hf:org/repo/model.gguf' });
    expect(error.message).toContain('web page');
    expect(hub.transfers).toHaveLength(1);
    expect(await filesLeft()).toStrictEqual([]);
  });
});

describe('a hub that refuses', () => {
  it.each<[number, Record<string, string>, string | undefined, RegExp]>([
    [404, {}, undefined, /answers 404: there is no such repository, revision or file/],
    [404, { 'x-error-code': 'EntryNotFound' }, undefined, /the repository has no such file/],
    [404, { 'x-error-code': 'RevisionNotFound' }, undefined, /the repository has no such revision/],
    [401, { 'x-error-code': 'GatedRepo' }, undefined, /gated: accept its terms on the hub; set HF_TOKEN/],
    [401, {}, undefined, /not there, private or gated; set HF_TOKEN/],
    [403, { 'x-error-code': 'GatedRepo' }, TOKEN, /gated: .*the token in HF_TOKEN does not give access/],
    [400, {}, undefined, /answers 400: the request was refused/],
  ])('is asked once: %d %j', async (status, headers, token, expected) => {
    hub.behaviour.hubAnswers = [{ status, headers }];
    const error = await failure(download({ token }));
    expect(error).toMatchObject({ code: 'WARMPATH_DOWNLOAD_FAILED', path: 'hf:org/repo/model.gguf' });
    expect(error.message).toMatch(expected);
    expect(error.message).not.toContain(TOKEN);
    expect(hub.requests).toHaveLength(1);
  });

  it('may not redirect for ever', async () => {
    hub.behaviour.location = `${hub.url}/again`;
    expect((await failure(download())).message).toContain('redirects more than 8 times');
    expect(hub.requests).toHaveLength(9);
  });

  it('may not redirect to something that is not the web', async () => {
    hub.behaviour.location = 'file:///etc/passwd';
    expect((await failure(download())).message).toContain('not https');
  });

  it('has to have an http address', () => {
    expect(() => parseHubUrl('ftp://hub.example')).toThrow(
      expect.objectContaining({ code: 'WARMPATH_MODEL_SPEC', path: 'HF_ENDPOINT' }),
    );
  });

  it('does not make a signed address or the token appear in any error', async () => {
    hub.behaviour.cuts = [0, 0, 0, 0, 0];
    const error = await failure(download({ token: TOKEN }));
    const everything = [error, error.cause].map((part) => `${(part as Error).stack} ${JSON.stringify(part)}`).join();
    expect(everything).not.toContain(TOKEN);
    expect(everything).not.toContain('signature');
  });
});

describe('a disk that refuses', () => {
  it('is told at once, and is not tried again', async () => {
    await mkdir(`${path}.partial/in-the-way`, { recursive: true });
    const error = await failure(download());
    expect(error).toMatchObject({ code: 'WARMPATH_DOWNLOAD_FAILED' });
    expect(error.message).toContain('cannot be stored');
    expect(hub.requests.length).toBeLessThanOrEqual(2);
  });
});

describe('an abort', () => {
  it('ends a transfer under way with its reason and keeps the part', async () => {
    const stop = new AbortController();
    const reason = new Error('the user has gone');
    const onProgress = (event: ModelProgress) => {
      if (event.kind === 'download' && event.bytes > 0) stop.abort(reason);
    };
    await expect(download({ signal: stop.signal, onProgress })).rejects.toBe(reason);
    expect(await filesLeft()).toStrictEqual(['model.gguf.partial', 'model.gguf.partial.json']);
  });

  it('ends a pause between two tries', async () => {
    hub.behaviour.hubAnswers = [{ status: 503 }];
    const stop = new AbortController();
    const onProgress = (event: ModelProgress) => {
      if (event.kind === 'retry') stop.abort(new Error('enough'));
    };
    await expect(download({ signal: stop.signal, onProgress, firstDelayMs: 30_000 })).rejects.toThrow('enough');
  });

  it('is passed on when a listener throws', async () => {
    const onProgress = () => {
      throw new Error('no terminal');
    };
    await expect(download({ onProgress })).rejects.toThrow('no terminal');
    expect(hub.transfers).toHaveLength(1);
  });
});

describe('two downloads of one file at once', () => {
  it('transfer it once; the second waits and takes the first one’s file', async () => {
    const both = await Promise.all([download(), download(), download()]);
    expect(both).toStrictEqual([path, path, path]);
    expect(hub.transfers).toHaveLength(1);
    expect(events.filter(({ kind }) => kind === 'wait')).toHaveLength(2);
    expect(await filesLeft()).toStrictEqual(['model.gguf']);
  });

  it('end their waiting when they are aborted', async () => {
    hub.behaviour.hubAnswers = [{ status: 503 }];
    const release = new AbortController();
    const holding = new AbortController();
    const held = once(holding.signal, 'abort');
    const first = download({
      firstDelayMs: 30_000,
      signal: release.signal,
      onProgress: ({ kind }) => kind === 'retry' && holding.abort(),
    });
    first.catch(() => undefined);
    await held;
    const stop = new AbortController();
    const reason = new Error('not any more');
    const second = download({ signal: stop.signal, onProgress: ({ kind }) => kind === 'wait' && stop.abort(reason) });
    await expect(second).rejects.toBe(reason);
    release.abort(new Error('done'));
    await expect(first).rejects.toThrow('done');
    expect(await filesLeft()).toStrictEqual([]);
  });
});
