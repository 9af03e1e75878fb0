import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { isShown, root } from './docs-blocks.js';
import { type StartedGateway, startGatewayAndEngine } from './started-gateway.js';

const run = promisify(execFile);
const folder = join(root, 'examples');
const programs = readdirSync(folder).filter((name) => /\.(js|py)$/.test(name));

let gateway: StartedGateway;

beforeAll(async () => {
  gateway = await startGatewayAndEngine();
});

afterAll(() => gateway.stop());

it('the README lists every program', () => {
  const listed = [...readFileSync(join(folder, 'README.md'), 'utf8').matchAll(/^\| `([\w.-]+)` \|/gm)];
  expect(listed.map(([, name]) => name).toSorted()).toEqual(programs.toSorted());
});

it.each(programs)('%s prints what it says', async (name) => {
  const [, shown] = /^(?:\/\/|#) Prints:\n(.*)$/ms.exec(readFileSync(join(folder, name), 'utf8'))!;
  const command = name.endsWith('.py') ? 'python3' : process.execPath;
  const { stdout } = await run(command, [join(folder, name)], { env: { ...process.env, WARMPATH_URL: gateway.url } });
  const expected = shown!.replace(/^(\/\/|#) ?/gm, '');
  if (!isShown(expected, stdout)) expect(stdout).toBe(expected);
});
