import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { ERROR_TABLE } from '@warmpath/core/internal';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { configJsonSchema, describeConfig } from '../src/config/describe.js';
import { checkConfig, type Environment, loadConfig, REMOVED_KEYS, resolveConfig } from '../src/config/load.js';

const URL_LINE = 'upstream: { url: http://engine:8000 }';

function read(text: string, environment: Environment = {}) {
  const { config, problems } = checkConfig(text, environment);
  expect(problems).toEqual([]);
  return config!;
}

describe('a configuration', () => {
  it('needs the URL of the engine only; the rest has defaults', () => {
    const config = read(URL_LINE);
    expect(config).toEqual(resolveConfig({ upstream: { url: 'http://engine:8000' } }));
    expect(config.arrange).toMatchObject({ policy: 'foresight', hints: true, template: 'xml', layout: 'question' });
    expect(config.server.port).toBe(8080);
    expect(config.upstream.timeoutMs).toBe(300_000);
  });

  it('says where an alias leads nowhere, or where aliases are too many, and does not throw', () => {
    const [unknown] = checkConfig(`${URL_LINE}\nserver: *nowhere\n`, {}).problems;
    expect(unknown).toMatchObject({
      code: 'WARMPATH_CONFIG_SYNTAX',
      line: 2,
      message: expect.stringContaining('nowhere'),
    });
    const levels = ['a: &a [x, x, x, x, x, x, x, x, x]'];
    for (const [i, name] of [...'bcdefgh'].entries()) levels.push(`${name}: &${name} [${'*abcdefgh'[i + 1]}]`);
    const bomb = levels.map((line) => line.replace(/\[(.)\]/, '[*$1, *$1, *$1, *$1, *$1, *$1, *$1, *$1, *$1]'));
    expect(checkConfig(bomb.join('\n'), {}).problems).toMatchObject([{ code: 'WARMPATH_CONFIG_SYNTAX' }]);
  });

  it('is quoted by no warning of the process: what nothing knows is a problem with its line', () => {
    const warned = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
    const problems = (text: string) => checkConfig(`${URL_LINE}\n${text}\n`, { KEY: '? [secret]' }).problems;
    expect(problems('? { the-key: of-somebody }\n: 1')).toMatchObject([{ code: 'WARMPATH_CONFIG_UNKNOWN_KEY' }]);
    expect(problems('server: { ? [a, b] : 1 }')).toMatchObject([{ code: 'WARMPATH_CONFIG_UNKNOWN_KEY' }]);
    expect(problems('log: { level: !vault secret/of-somebody }')).toMatchObject([
      { code: 'WARMPATH_CONFIG_SYNTAX', line: 2, message: expect.stringContaining('!vault') },
    ]);
    expect(problems(`log: { level: "\${KEY}" }`)).toMatchObject([
      { code: 'WARMPATH_CONFIG_INVALID', path: 'log.level' },
    ]);
    expect(warned).not.toHaveBeenCalled();
    warned.mockRestore();
  });

  it('needs no URL of an engine that the caller starts, whose address goes before any other', () => {
    const url = 'http://127.0.0.1:9';
    for (const text of ['recognise: auto', `recognise: auto\n${URL_LINE}`, '']) {
      expect(checkConfig(text, {}, url).config?.upstream.url).toBe(url);
    }
    expect(checkConfig('upstream: { maxConcurrent: 3 }', {}, url).config?.upstream).toMatchObject({
      url,
      maxConcurrent: 3,
    });
    expect(checkConfig('upstream: 3', {}, url).problems).toMatchObject([{ path: 'upstream' }]);
    expect(checkConfig('[]', {}, url).config).toBeUndefined();
    expect(checkConfig('recognise: ask', {}).config).toBeUndefined();
  });

  it('may be YAML or JSON', () => {
    const yaml = 'upstream:\n  url: http://engine:8000\nserver:\n  port: 1\n';
    expect(read('{"upstream":{"url":"http://engine:8000"},"server":{"port":1}}')).toEqual(read(yaml));
  });

  it('takes variables from the environment, with the type that is wanted', () => {
    const text = [
      `server: { port: "\${PORT:-8081}", host: "\${HOST}", open: true }`,
      'upstream:',
      `  url: http://\${HOST}:\${ENGINE_PORT}/v1`,
      `  apiKey: \${KEY}`,
      'arrange:',
      `  hints: \${HINTS}`,
    ].join('\n');
    const config = read(text, { HOST: 'engine', ENGINE_PORT: '80', KEY: '123456', HINTS: 'false', PORT: '' });
    expect(config.server).toMatchObject({ port: 8081, host: 'engine' });
    expect(config.upstream).toMatchObject({ url: 'http://engine:80/v1', apiKey: '123456' });
    expect(config.arrange.hints).toBe(false);
  });

  it('keeps an escaped variable, and never reads keys out of one', () => {
    const text = `upstream:\n  url: http://engine:8000\n  apiKey: "$\${KEY} \${KEY}"`;
    expect(read(text, { KEY: 'a\nserver: {port: 1}' }).upstream.apiKey).toBe(`\${KEY} a\nserver: {port: 1}`);
  });

  const cases: [name: string, text: string, code: string, path: string, line: number | undefined, message: RegExp][] = [
    ['broken YAML', 'upstream: {\n', 'WARMPATH_CONFIG_SYNTAX', '', 2, /./],
    ['a key given twice', `${URL_LINE}\n${URL_LINE}`, 'WARMPATH_CONFIG_SYNTAX', '', 2, /unique/],
    ['nothing', '', 'WARMPATH_CONFIG_INVALID', 'upstream.url', undefined, /URL/],
    [
      'an unknown section',
      `${URL_LINE}\nsrver: {}`,
      'WARMPATH_CONFIG_UNKNOWN_KEY',
      'srver',
      2,
      /did you mean server\?/,
    ],
    [
      'an unknown key',
      'upstream:\n  url: http://e\nserver:\n  trustedHeaders:\n    tenat: x',
      'WARMPATH_CONFIG_UNKNOWN_KEY',
      'server.trustedHeaders.tenat',
      5,
      /did you mean server\.trustedHeaders\.tenant\?/,
    ],
    [
      'a key like no other',
      `${URL_LINE}\nqqqqqqqqqq: 1`,
      'WARMPATH_CONFIG_UNKNOWN_KEY',
      'qqqqqqqqqq',
      2,
      /^unknown key; there are server, upstream/,
    ],
    ['a wrong type', `${URL_LINE}\nserver:\n  port: high`, 'WARMPATH_CONFIG_INVALID', 'server.port', 3, /number/],
    ['a port beyond', `${URL_LINE}\nserver: { port: 70000 }`, 'WARMPATH_CONFIG_INVALID', 'server.port', 2, /65535/],
    [
      'half a millisecond',
      'upstream: { url: http://e, timeoutMs: 0.5 }',
      'WARMPATH_CONFIG_INVALID',
      'upstream.timeoutMs',
      1,
      /int/,
    ],
    ['no URL', 'upstream: {}', 'WARMPATH_CONFIG_INVALID', 'upstream.url', 1, /URL/],
    ['another protocol', 'upstream: { url: ftp://engine }', 'WARMPATH_CONFIG_INVALID', 'upstream.url', 1, /http/],
    [
      'an unknown policy',
      `${URL_LINE}\narrange: { policy: best }`,
      'WARMPATH_CONFIG_INVALID',
      'arrange.policy',
      2,
      /exact/,
    ],
    [
      'a negative maxShift',
      `${URL_LINE}\narrange: { maxShift: -1 }`,
      'WARMPATH_CONFIG_INVALID',
      'arrange.maxShift',
      2,
      />=0/,
    ],
    [
      'a negative shiftPrice',
      `${URL_LINE}\narrange: { shiftPrice: -1 }`,
      'WARMPATH_CONFIG_INVALID',
      'arrange.shiftPrice',
      2,
      />=0/,
    ],
    [
      'a variable that is not set',
      `${URL_LINE}\nserver:\n  host: \${NO_SUCH}`,
      'WARMPATH_CONFIG_VARIABLE',
      'server.host',
      3,
      /NO_SUCH/,
    ],
    ['a list in place of a section', `${URL_LINE}\nlog: [info]`, 'WARMPATH_CONFIG_INVALID', 'log', 2, /object/],
  ];

  it.each(cases)('with %s says what, where and on which line', (_, text, code, path, line, message) => {
    const { config, problems } = checkConfig(text, {});
    expect(config).toBeUndefined();
    expect(problems[0]).toMatchObject({ code, path, line });
    expect(problems[0]!.message).toMatch(message);
    expect(ERROR_TABLE).toHaveProperty(code);
  });

  it.each(Object.keys(REMOVED_KEYS))('with the removed key %s says what happens instead, with its line', (path) => {
    const isOfOne = path.startsWith('engines.');
    const names = isOfOne ? path.split('.').slice(1) : path.split('.');
    const indent = isOfOne ? '    ' : '';
    const lines = names.map((name, depth) => `${indent}${'  '.repeat(depth)}${name}:`);
    const start = isOfOne ? 'engines:\n  - name: a\n    url: http://a' : 'log: {}';
    const { problems } = checkConfig(`${start}\n${lines.join('\n')} 1\n`, {});
    const line = start.split('\n').length + names.length;
    const full = isOfOne ? path.replace('engines.', 'engines.0.') : path;
    expect(problems.filter(({ code }) => code === 'WARMPATH_CONFIG_UNKNOWN_KEY')).toEqual([
      { code: 'WARMPATH_CONFIG_UNKNOWN_KEY', path: full, line, message: `removed key: ${REMOVED_KEYS[path]}` },
    ]);
  });

  it('names every problem, in the order of the file', () => {
    const { problems } = checkConfig('log: { levl: x }\nupstream: { url: 3 }\nserver: { port: -1, hosst: x }', {});
    expect(problems.map(({ path, line }) => [path, line])).toEqual([
      ['log.levl', 1],
      ['upstream.url', 2],
      ['server.port', 3],
      ['server.hosst', 3],
    ]);
  });

  it('made in code is checked alike', () => {
    expect(() => resolveConfig({ upstream: { url: 'nonsense' } })).toThrowError(
      expect.objectContaining({ code: 'WARMPATH_CONFIG_INVALID', path: 'upstream.url' }),
    );
  });
});

describe('loadConfig', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-config-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('reads a file', async () => {
    const file = join(folder, 'warmpath.yaml');
    await writeFile(file, `${URL_LINE}\nserver: { port: '\${PORT}' }`);
    expect((await loadConfig(file, { PORT: '9' })).server.port).toBe(9);
  });

  it('throws the first problem with its line and the number of others', async () => {
    const file = join(folder, 'bad.yaml');
    await writeFile(file, `${URL_LINE}\nserver: { prt: 1, hst: 2 }`);
    const error = await loadConfig(file, {}).catch((caught: unknown) => caught);
    expect(WarmpathError.isInstance(error)).toBe(true);
    expect(error).toMatchObject({ code: 'WARMPATH_CONFIG_UNKNOWN_KEY', path: 'server.prt' });
    expect((error as Error).message).toBe(
      `server.prt: unknown key; did you mean server.port? (line 2 of ${file}); and 1 more: \`warmpath check-config ${file}\` lists them`,
    );
  });

  it('says in words that a key is missing, or of another type', () => {
    const models = 'collections: { folder: x, models: { handbook: { model: m } } }';
    const { problems } = checkConfig(`${URL_LINE}\nserver: { port: abc }\n${models}`, {});
    expect(problems.map(({ line, message }) => [line, message.split(';')[0]])).toEqual([
      [2, 'must be of type number, and not string'],
      [3, 'is missing (a string)'],
    ]);
  });

  it('names a file that is not there', async () => {
    const error = await loadConfig(join(folder, 'none.yaml'), {}).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'WARMPATH_CONFIG_NOT_FOUND' });
  });
});

describe('the documentation of the configuration', () => {
  it('describes every key', () => {
    const keys = describeConfig();
    expect(keys.filter(({ description }) => description.length < 10)).toEqual([]);
    expect(keys.find(({ path }) => path === 'upstream.url')).toMatchObject({ required: false, type: 'string' });
    expect(keys.find(({ path }) => path === 'arrange.policy')).toMatchObject({ default: 'foresight', required: false });
    expect(keys.find(({ path }) => path === 'server.port')).toMatchObject({ default: 8080, type: 'integer' });
    expect(keys.map(({ path }) => path)).toContain('upstream.timeoutMs');
  });

  it('has at most 60 keys: one more needs a reason to go without another', () => {
    expect(describeConfig().length).toBeLessThanOrEqual(60);
  });

  it('is a JSON Schema that allows nothing else', () => {
    expect(configJsonSchema()).toMatchObject({ type: 'object', additionalProperties: false });
  });
});
