import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { afterAll, describe, expect, it } from 'vitest';
import { freePort } from '../free-port.js';
import { stopGroup } from '../own-process.js';
import { allowPrompts } from '../real-gateway.js';

const run = promisify(execFile);
const root = join(import.meta.dirname, '../..');
const INSTALL_TIMEOUT_MS = 300_000;

const DOCUMENTS = [
  { id: 'velka', title: 'Velka', content: 'The weight of Velka is 42 kg. The colour of Velka is teal.' },
  { id: 'orsin', title: 'Orsin', content: 'The weight of Orsin is 17 kg. The founder of Orsin is Mirela.' },
];

/** A LangChain chain as its tutorials have it: nothing of Warmpath in it but the base URL. */
const CHAIN = `
  import { createStuffDocumentsChain } from '@langchain/classic/chains/combine_documents';
  import { Document } from '@langchain/core/documents';
  import { ChatPromptTemplate } from '@langchain/core/prompts';
  import { ChatOpenAI } from '@langchain/openai';
  const llm = new ChatOpenAI({ model: 'warmpath-tiny', apiKey: 'none', maxTokens: 8, temperature: 0,
    configuration: { baseURL: process.env.WARMPATH_URL + '/v1' } });
  const prompt = ChatPromptTemplate.fromMessages([
    ['system', 'Use the following pieces of retrieved context to answer the question.\\n\\n{context}'],
    ['human', '{input}'],
  ]);
  const chain = await createStuffDocumentsChain({ llm, prompt });
  const pages = ['Velka', 'Orsin', 'Tamsa', 'Ardun', 'Brenn'].map((name, place) => new Document({
    pageContent: Array.from({ length: 8 }, (_, i) => 'Fact ' + i + ' of ' + name + ' is ' + (7 * place + i) + '.').join(' '),
  }));
  const cached = [];
  const callbacks = [{ handleLLMEnd: ({ llmOutput, generations }) =>
    cached.push(generations[0][0].message.usage_metadata.input_token_details?.cache_read ?? 0) }];
  for (const order of JSON.parse(process.env.ORDERS)) {
    await chain.invoke({ input: 'What is fact 3 of Velka?', context: order.map((i) => pages[i]) }, { callbacks });
  }
  console.log(JSON.stringify(cached));
`;

/** What a new user does: clone, start, ask, open the page, put it before a chain. Each step prints its seconds. */
describe('the first five minutes', () => {
  const started = performance.now();
  const children: ChildProcess[] = [];
  let clone: string;
  let url: string;

  afterAll(async () => {
    for (const child of children.splice(0)) await stopGroup(child);
    if (clone !== undefined) await rm(clone, { recursive: true, force: true });
  });

  /** Collections lie in the clone, and leave with it. */
  const environment = () => ({ ...process.env, WARMPATH_DATA_DIR: join(clone, '.data') });

  function say(what: string): void {
    process.stdout.write(`${((performance.now() - started) / 1_000).toFixed(0).padStart(4)} s  ${what}\n`);
  }

  /** Starts Warmpath as the README does; resolves once it says where it listens, with all that it said before. */
  async function startWarmpath(...flags: string[]): Promise<string[]> {
    const port = await freePort();
    const child = spawn('npm', ['start', '--', '--port', String(port), '--live', ...flags], {
      cwd: clone,
      env: environment(),
      detached: true,
    });
    children.push(child);
    const lines: string[] = [];
    url = `http://127.0.0.1:${port}`;
    const listening = new Promise<void>((resolve, reject) => {
      for (const stream of [child.stdout!, child.stderr!]) {
        createInterface(stream).on('line', (line) => {
          lines.push(line);
          if (line.includes(`:${port}`)) resolve();
        });
      }
      child.once('exit', () => reject(new Error(`npm start ended: ${lines.join('\n')}`)));
    });
    await listening;
    return lines;
  }

  const ask = async (documents: readonly object[]) => {
    const messages = [{ role: 'user', content: 'What is the weight of Velka?' }];
    const answer = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ messages, documents }),
    });
    return (await answer.json()) as {
      readonly choices: readonly { readonly message: { readonly content: string } }[];
      readonly usage: {
        readonly prompt_tokens: number;
        readonly prompt_tokens_details: { readonly cached_tokens: number };
      };
    };
  };

  it('clones and installs', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    clone = await mkdtemp(join(tmpdir(), 'warmpath-first-steps-'));
    await run('git', ['clone', '--quiet', root, clone]);
    say('git clone');
    const { stderr } = await run('npm', ['ci'], { cwd: clone, maxBuffer: 1 << 26 });
    // What npm says of this machine's own settings is not the repository's.
    expect(stderr.split('\n').filter((line) => line !== '' && !/^npm warn Unknown .* config/.test(line))).toEqual([]);
    say('npm ci, which warned of nothing');
  });

  it('starts, and says what it does from the first second', { timeout: INSTALL_TIMEOUT_MS }, async () => {
    const lines = await startWarmpath();
    expect(lines.find((line) => !/^(npm warn|>|$)/.test(line))).toContain('Building Warmpath');
    say(`npm start: listens at ${url}`);
  });

  it('answers, and reuses the prompt when the documents come the other way round', async () => {
    const first = await ask(DOCUMENTS);
    expect(first.choices[0]!.message.content).toContain('42');
    const second = await ask(DOCUMENTS.toReversed());
    expect(second.choices[0]!.message.content).toBe(first.choices[0]!.message.content);
    const { prompt_tokens: prompt, prompt_tokens_details: details } = second.usage;
    expect(details.cached_tokens).toBeGreaterThan(0.5 * prompt);
    say(`asked twice: ${details.cached_tokens} of ${prompt} tokens of the second prompt were cached`);
  });

  it('takes its own docs in, and finds in them how it is put before vLLM', async () => {
    const warmpath = (...args: string[]) => run('npx', ['warmpath', ...args], { cwd: clone, env: environment() });
    const { stdout: taken } = await warmpath('ingest', 'docs');
    say(taken.trim().split('\n').at(-1)!);
    const { stdout: said } = await warmpath('ask', 'How do I put it before vLLM?', '--gateway', url);
    const passages = said.slice(said.indexOf('Passages')).match(/^ {1,2}\d+ {2}.*$/gm)!;
    expect(passages.slice(0, 3).join('\n')).toContain('docs/engines/vllm.md');
    say('asked its own docs');
  });

  it('shows itself on a page', async () => {
    const browser = await chromium.launch({
      executablePath: '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-sync'],
    });
    try {
      const page = await browser.newPage();
      await page.goto(`${url}/ui`);
      // Two questions over HTTP, and one by `warmpath ask`.
      await page.getByText('3', { exact: true }).first().waitFor();
      const text = await page.locator('body').innerText();
      expect(text).toContain('TTFT');
      say('the page is open');
    } finally {
      await browser.close();
    }
  });

  it("stands before LangChain's chain, whose code does not change", { timeout: INSTALL_TIMEOUT_MS }, async () => {
    await writeFile(join(clone, 'packages/langchain/chain.js'), CHAIN);
    const chain = async (orders: readonly (readonly number[])[]) => {
      const env = { ...process.env, WARMPATH_URL: url, ORDERS: JSON.stringify(orders) };
      const { stdout } = await run(process.execPath, ['packages/langchain/chain.js'], { cwd: clone, env });
      return JSON.parse(stdout) as number[];
    };
    const places = [0, 1, 2, 3, 4];
    const pairs = places.flatMap((a) => places.flatMap((b) => (a === b ? [] : [[a, b, (a + b) % 5]])));
    await chain(
      pairs
        .filter((order) => new Set(order).size === 3)
        .concat([
          [0, 3, 1],
          [2, 4, 0],
          [1, 3, 2],
          [4, 2, 3],
          [3, 1, 0],
          [0, 4, 2],
          [2, 1, 3],
          [4, 0, 3],
        ]),
    );
    await allowPrompts(url, 1, { authorization: 'Bearer none' });
    const cached = await chain([
      [0, 1, 2],
      [2, 0, 1],
      [1, 2, 0],
    ]);
    expect(cached).toHaveLength(3);
    expect(cached[1]).toBeGreaterThan(cached[0]! + 100);
    expect(cached[2]).toBeGreaterThan(cached[0]! + 100);
    say(`a LangChain chain in front: cached tokens ${cached.join(', ')}`);
  });
});
