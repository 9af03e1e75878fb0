import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type GatewayConfigInput, startGateway } from '@warmpath/gateway';
import { request } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Terminal } from '../src/terminal.js';
import { drawFrame } from '../src/top/draw-frame.js';
import type { Figures } from '../src/top/figures.js';
import { type FakeEngine, startFakeEngine } from './fake-engine.js';
import { MAIN, runCli } from './run-cli.js';

const KEY = 'the-key-of-the-operator';
const TIMEOUT = { timeout: 120_000 };
const ESCAPE = '\u001b';

let engine: FakeEngine;

beforeAll(async () => {
  engine = await startFakeEngine();
});

afterAll(() => engine.close());

function gatewayAt(server: GatewayConfigInput['server'] = {}) {
  const config = { upstream: { url: engine.url }, log: { level: 'silent' as const } };
  return startGateway({ ...config, server: { port: 0, ...server } });
}

async function ask(url: string, id: string): Promise<void> {
  const response = await request(`${url}/v1/chat/completions`, {
    method: 'POST',
    // A connection that is kept may be one to the gateway that was closed just now, at the same port.
    reset: true,
    headers: { 'content-type': 'application/json', 'x-request-id': id },
    body: JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'What is the weight of Velka?' }] }),
  });
  await response.body.arrayBuffer();
}

const FIGURES: Figures = {
  time: 0,
  requestsPerSecond: 1.5,
  errors: 0,
  ttftCached: [1, 20, 3_000],
  ttftComputed: [undefined, undefined, undefined],
  cachedShare: 0.5,
  predictedShare: undefined,
  queued: 3,
  queueCapacity: 512,
  inFlight: 7,
  failedOpen: 0,
  engines: [],
  requests: [],
};
const STYLE = new Terminal(process, { json: true, environment: {} }).style;

describe('a frame', () => {
  const hostile = `a${ESCAPE}[2Jb\r\n\u202ec\u2028${'long'.repeat(80)}`;
  const engineStatus = {
    name: hostile,
    url: 'http://e',
    state: 'failing',
    reason: hostile,
    kind: 'generic',
    cacheKnown: 'served',
    inFlight: 1,
    limit: 8,
    queued: 2,
    pendingTokens: 0,
    served: 0,
    failed: 0,
    ejections: 0,
  } as const;
  const request = {
    sequence: 1,
    id: hostile,
    route: '/',
    status: 200,
    arrivedAt: 0,
    durationMs: 1,
    receivedMs: 0,
    overheadMs: 0,
    queuedMs: 0,
    retrievalMs: null,
    aheadMs: 0,
    speculation: null,
    engine: null,
    ttftMs: 4,
    documents: 0,
    promptTokens: 8,
    cachedTokens: 4,
    predictedTokens: 0,
    references: 0,
    broke: null,
    error: null,
    failedOpen: false,
  };
  const full: Figures = {
    ...FIGURES,
    engines: Array.from({ length: 20 }, () => engineStatus),
    requests: Array.from({ length: 200 }, () => request),
  };

  it.each([
    [80, 24],
    [200, 60],
    [40, 5],
    [40, 1],
  ])('fits a screen of %i columns and %i rows, and names cannot draw outside of their place', (columns, rows) => {
    const lines = drawFrame('http://gateway', full, { columns, rows, style: STYLE });
    expect(lines.length).toBeLessThanOrEqual(rows);
    for (const line of lines) {
      expect([...line].length).toBeLessThanOrEqual(columns);
      expect(line).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}]/u);
    }
  });

  it('says what is known, and a dash where nothing is', () => {
    const text = drawFrame('http://g', FIGURES, { columns: 80, rows: 24, style: STYLE }).join('\n');
    expect(text).toContain('with reuse      1.0 ms     20 ms    3.00 s');
    expect(text).toContain('without              -         -         -');
    expect(text).toContain('50.0 % of prompt tokens   predicted -');
    expect(text).toContain('7 in flight   3 of 512 in the queue');
  });
});

describe('warmpath top --once', () => {
  it('prints one frame of a gateway, plain, in 80 columns', TIMEOUT, async () => {
    const gateway = await gatewayAt();
    try {
      await ask(gateway.url, 'a-request');
      const { code, stdout, stderr } = await runCli(['top', '--once', '--gateway', gateway.url]);
      expect([code, stderr]).toEqual([0, '']);
      for (const word of ['requests/s', 'TTFT', 'with reuse', 'Engine', 'in the queue', ' ready ', 'a-request']) {
        expect(stdout).toContain(word);
      }
      for (const line of stdout.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
      expect(stdout).not.toContain(ESCAPE);
      const json = await runCli(['top', '--json', '--gateway', gateway.url]);
      expect(JSON.parse(json.stdout)).toMatchObject({ queued: 0, requests: [{ id: 'a-request', status: 200 }] });
    } finally {
      await gateway.close();
    }
  });

  it('needs the operator key where there is one, and a gateway', TIMEOUT, async () => {
    const gateway = await gatewayAt({ operatorKey: { key: KEY } });
    const args = ['top', '--once', '--gateway', gateway.url];
    try {
      expect((await runCli(args)).stderr).toContain('WARMPATH_UNAUTHORIZED');
      const environment = { OPERATOR: KEY };
      expect((await runCli([...args, '--operator-key-env', 'OPERATOR'], { environment })).code).toBe(0);
    } finally {
      await gateway.close();
    }
    const gone = await runCli(args);
    expect([gone.code, gone.stderr]).toEqual([1, expect.stringContaining('WARMPATH_GATEWAY_UNREACHABLE')]);
  });
});

describe('warmpath top on a terminal', () => {
  it.each([
    ['q', 'q', 0],
    ['Ctrl-C', '\u0003', 130],
  ])('follows the gateway, says when it is gone, comes back, and leaves with %s', TIMEOUT, async (_, key, code) => {
    let gateway = await gatewayAt();
    const { port } = new URL(gateway.url);
    const top = `stty cols 80 rows 24; exec ${process.execPath} ${MAIN} top --gateway ${gateway.url}`;
    const env = { ...process.env, TERM: 'xterm', NO_COLOR: '1' };
    const terminal = spawn('script', ['-qefc', top, '/dev/null'], { env, stdio: ['pipe', 'pipe', 'inherit'] });
    try {
      let said = '';
      const shows = async (text: string) => {
        while (!said.includes(text)) said += String((await once(terminal.stdout, 'data'))[0]);
        said = said.slice(said.indexOf(text) + text.length);
      };
      await shows(`${ESCAPE}[?1049h`);
      await shows('requests/s');
      await ask(gateway.url, 'followed');
      await shows('followed');
      await gateway.close();
      await shows('Next try in');
      gateway = await gatewayAt({ port: Number(port) });
      await ask(gateway.url, 'again');
      await shows('again');
      terminal.stdin.write(key);
      await shows(`${ESCAPE}[?25h${ESCAPE}[?1049l`);
      expect((await once(terminal, 'close'))[0]).toBe(code);
    } finally {
      terminal.kill();
      await gateway.close();
    }
  });
});
