import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { root } from './docs-blocks.js';

// What `npm ci` would warn of stands in the lock file. Frameworks that nobody maintains any more, or that ask for a
// newer Node than ours, are installed apart: `test/frameworks`.

interface Locked {
  readonly deprecated?: string;
  readonly engines?: { readonly node?: string };
}

const read = (path: string) => readFileSync(join(root, path), 'utf8');
const { packages } = JSON.parse(read('package-lock.json')) as { readonly packages: Readonly<Record<string, Locked>> };

/** Places of installed packages that a warning would be about. */
const placesOf = (isMeant: (locked: Locked) => boolean) =>
  Object.keys(packages).filter((place) => place.includes('node_modules/') && isMeant(packages[place]!));

/** Whether a range asks for more than Node 20.20: none of its alternatives begins there or below. */
function wantsNewerNode({ engines }: Locked): boolean {
  const ranges = (engines?.node ?? '*').split('||').map((range) => /(\d+)(?:\.(\d+))?/.exec(range));
  return ranges.every((found) => found !== null && 100 * Number(found[1]) + Number(found[2] ?? 0) > 2_020);
}

describe('npm ci has nothing to warn of', () => {
  it('no package is deprecated', () => {
    expect(placesOf(({ deprecated }) => deprecated !== undefined)).toEqual([]);
  });

  it('no package wants a newer Node', () => {
    expect(Object.keys(packages).length).toBeGreaterThan(300);
    expect(placesOf(wantsNewerNode)).toEqual([]);
  });

  it('and nothing keeps it from warning', () => {
    expect(read('.npmrc')).not.toMatch(/loglevel|silent/);
  });
});

describe('the audit of dependencies', () => {
  /** What the audit says where a fake registry gives this answer to its question, and its exit code. */
  async function audit(status: number, advisories: object): Promise<{ code: number; said: string }> {
    const registry = createServer((request, response) => {
      const isAudit = request.method === 'POST' && request.url === '/-/npm/v1/security/advisories/bulk';
      response.writeHead(isAudit ? status : 404, { 'content-type': 'application/json' });
      response.end(JSON.stringify(isAudit ? advisories : {}));
      request.resume();
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void registry.close());
    await once(registry, 'listening');
    const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`;
    // npm remembers advisories.
    const cache = mkdtempSync(join(tmpdir(), 'warmpath-audit-'));
    onTestFinished(() => rmSync(cache, { recursive: true }));
    const env = { ...process.env, npm_config_registry: url, npm_config_cache: cache };
    return new Promise((resolve) => {
      execFile(process.execPath, [join(root, 'scripts/audit.js')], { env }, (error, said) => {
        resolve({ code: error === null ? 0 : Number(error.code), said });
      });
    });
  }

  const hole = (severity: string) => ({
    fastify: [{ id: 1, url: 'https://advisories/1', title: 'a hole', severity, vulnerable_versions: '*' }],
  });

  it('refuses what has a known hole of high severity, and names it', async () => {
    const { code, said } = await audit(200, hole('high'));
    expect(said).toMatch(/^high: fastify .*a hole https:\/\/advisories\/1$/m);
    expect(said).toMatch(/[1-9]\d* refused\.$/m);
    expect(code).toBe(1);
  });

  it('names lesser ones', async () => {
    const { code, said } = await audit(200, hole('moderate'));
    expect(said).toMatch(/^moderate: fastify /m);
    expect([code, /Audited \d{2,} dependencies: .* 0 refused\.$/m.test(said)]).toEqual([0, true]);
  });

  it('says so where the registry cannot be asked, and lets the change pass', async () => {
    const { code, said } = await audit(405, {});
    expect(said).toMatch(/^DEPENDENCIES WERE NOT AUDITED: .*\(status 405\)\.$/m);
    expect(code).toBe(0);
  });
});
