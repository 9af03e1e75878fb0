import { WarmpathError, type Warning } from '@warmpath/core';
import { printableLine } from '@warmpath/core/internal';
import type { Command } from 'commander';
import { addCollectionOption, withCollections } from '../collections/open-collection.js';
import { addCommand, type CommandContext } from '../command-context.js';
import { EngineClient } from '../engine-client.js';
import { withInterruption } from '../interruption.js';
import { addGatewayOption, addKeyOption, jsonObject, wholeNumber } from '../options.js';
import type { Terminal } from '../terminal.js';
import { withGateway } from '../with-gateway.js';

interface AskOptions {
  readonly collection: string;
  readonly gateway: string;
  readonly keyEnv?: string;
  readonly model?: string;
  readonly passages?: number;
  readonly where?: object;
  readonly expand?: number;
}

interface AskParts {
  readonly client: EngineClient;
  readonly terminal: Terminal;
  readonly signal: AbortSignal;
}

/** A passage that an answer was made from, as the gateway tells. */
interface Source {
  readonly id: string;
  readonly label?: string;
  readonly title?: string | undefined;
  readonly source?: string | undefined;
  /** Where it stands in its file: `3`, `3-4`. */
  readonly pages?: string | undefined;
  readonly lines?: string | undefined;
  readonly score: number;
  readonly content: string;
}

/** A passage as the search tells it. */
interface Candidate extends Pick<Source, 'id' | 'title' | 'score' | 'content'> {
  readonly metadata?: Pick<Source, 'source' | 'pages' | 'lines'>;
}

/** What the gateway tells beside an answer. */
interface Retrieved {
  readonly sources?: readonly Source[];
  /** What the search went without. */
  readonly warnings?: readonly Warning[];
}

/** In place of an answer of the demo model. */
const DEMO_NOTE = [
  'No answer: this is the demo model. A real model would answer from these passages:',
  '`warmpath up --model hf:org/repo/file.gguf`, or `warmpath serve --engine URL`.',
];
/** Passages of an answer where the gateway's configuration says no other number. */
const USUAL_PASSAGES = 6;
/** Lines of a passage that are printed, of at most so many characters; of fewer on a narrow terminal. */
const EXCERPT_LINES = 3;
const LINE_LENGTH = 110;
const SHORTEST_LINE = 20;
const INDENT = '     ';

/** Adds `warmpath ask`. */
export function addAskCommand(program: Command, context: CommandContext): void {
  const command = addCommand(program, 'ask', 'ask a question of a collection; prints the answer and the passages');
  addKeyOption(addGatewayOption(addCollectionOption(command)))
    .argument('<question>', 'the question')
    .option('-k, --passages <number>', 'passages to answer from (default: as the gateway says)', wholeNumber(1, 100))
    .option('--where <json>', 'only passages with such metadata: {"source": {"prefix": "docs/"}}', jsonObject)
    .option('--expand <number>', 'passages before and behind each one that come along', wholeNumber(0, 10))
    .option('--model <name>', 'model to ask; the first one that is served if left out')
    .action(async (question: string, options: AskOptions) => {
      const { environment, terminal } = context;
      try {
        await withGateway(options, environment, (client, signal) =>
          ask(question, options, { client, terminal, signal }),
        );
      } catch (error) {
        const isOther = command.getOptionValueSource('gateway') !== 'default' || options.keyEnv !== undefined;
        if (isOther || !WarmpathError.isInstance(error) || error.code !== 'WARMPATH_GATEWAY_UNREACHABLE') throw error;
        await askOwn(question, options, context);
      }
    });
}

/** Asks an engine and a gateway that are started for this question. */
async function askOwn(question: string, { model, ...options }: AskOptions, context: CommandContext): Promise<void> {
  const { terminal, environment } = context;
  const tenant = 'default';
  // A model may take minutes to load: what is not there is told before.
  await withCollections({ tenant }, environment, (collections) => collections.get(tenant, options.collection));
  terminal.note('No gateway runs here: one is started for this question. `warmpath up` keeps one for the next.');
  // Only a question without a gateway needs the code of one.
  const { withEmbeddedGateway } = await import('../embedded-gateway.js');
  const { gatewayParts } = await import('../gateway-settings.js');
  await withInterruption((signal) => {
    // A name of a file or of a download is the engine's model; any other is one that the gateway serves.
    const isFile = model !== undefined && /[/:]|\.gguf$/.test(model);
    const { onRequest: _, ...parts } = gatewayParts(context, {});
    const settings = { port: 0, ...(isFile && { model }) };
    return withEmbeddedGateway(settings, context, { parts, signal }, async ({ gateway }) => {
      const client = new EngineClient({ url: gateway.url });
      const asked = { ...options, ...(!isFile && model !== undefined && { model }) };
      await ask(question, asked, { client, terminal, signal }).finally(() => client.close());
    });
  });
}

async function ask(
  question: string,
  { collection, model, passages, where, expand }: AskOptions,
  { client, terminal, signal }: AskParts,
): Promise<void> {
  if (question.trim() === '') throw new WarmpathError('WARMPATH_USAGE', { detail: 'the question is empty' });
  const served = await client.models(signal);
  const name = model ?? served[0]?.id ?? '';
  const demos = new Set(served.filter(({ demo }) => demo === true).map(({ id }) => id));
  let isDemo = demos.has(name);
  // Prefill of a real model takes minutes on a CPU: what was found is shown before.
  const narrowing = { ...(where !== undefined && { where }), ...(expand !== undefined && { expand }) };
  const fields = { query: question, k: passages ?? USUAL_PASSAGES, ...narrowing };
  const searched = await search(client, collection, fields, signal);
  const found = searched ?? [];
  if (found.length > 0) {
    printSources(terminal, question, found);
    terminal.line();
  }
  if (searched !== undefined && !isDemo) terminal.note('Waiting for the answer …');
  const { chunks } = await client.streamChat(
    {
      model: name,
      messages: [{ role: 'user', content: question }],
      // The prompt is computed all the same: the dashboard shows what of it was cached.
      ...(isDemo && { max_tokens: 1 }),
      stream_options: { include_usage: true },
      warmpath: { retrieval: { collection, ...(passages !== undefined && { k: passages }), ...narrowing } },
    },
    signal,
  );
  let answer = '';
  let sources: readonly Source[] = [];
  let warnings: readonly Warning[] = [];
  for await (const chunk of chunks) {
    // A gateway's own name of a model may lead to it.
    isDemo ||= demos.has(chunk.model ?? '');
    const text = isDemo ? '' : (chunk.choices?.[0]?.delta?.content ?? '');
    answer += text;
    terminal.text(text);
    ({ sources = sources, warnings = warnings } = (chunk.warmpath ?? {}) as Retrieved);
  }
  if (!isDemo) terminal.line();
  if (found.length === 0 || found.map(({ id }) => id).join() !== sources.map(({ id }) => id).join()) {
    printSources(terminal, question, sources);
  }
  for (const { code, message } of warnings) terminal.note(`The search went without a part: ${message} (${code})`);
  if (isDemo) for (const line of ['', ...DEMO_NOTE]) terminal.note(line);
  terminal.data({ question, collection, model: name, answer: isDemo ? null : answer, sources, warnings });
}

/** The passages that the gateway is going to answer from, as far as they can be searched without an answer. */
async function search(
  client: EngineClient,
  collection: string,
  fields: object,
  signal: AbortSignal,
): Promise<readonly Source[] | undefined> {
  try {
    const path = `/v1/collections/${encodeURIComponent(collection)}/search`;
    const { results } = (await client.post(path, fields, signal)) as { results: readonly Candidate[] };
    return results.map(({ id, title, score, content, metadata }) => ({
      id,
      title,
      score,
      content,
      source: metadata?.source,
      pages: metadata?.pages,
      lines: metadata?.lines,
    }));
  } catch {
    // A model may answer from a collection that others may not search; what else is wrong, the question meets again.
    return undefined;
  }
}

function printSources(terminal: Terminal, question: string, sources: readonly Source[]): void {
  const { bold, dim, cyan } = terminal.style;
  terminal.line();
  if (sources.length === 0) {
    terminal.line('No passage of the collection has a word of the question.');
    return;
  }
  terminal.line(bold('Passages'));
  const words = markedWords(question);
  const length = Math.max(SHORTEST_LINE, Math.min(LINE_LENGTH, terminal.columns - INDENT.length));
  for (const [place, { title, source, pages, lines, id, score, content }] of sources.entries()) {
    const name = title ?? source ?? id;
    const part = pages === undefined ? lines && `  lines ${lines}` : `  pages ${pages}`;
    const from = dim(`${source === undefined || source === name ? '' : `  ${source}`}${part ?? ''}`);
    terminal.line(`${String(place + 1).padStart(3)}  ${cyan(name)}${from}  ${dim(shownScore(score))}`);
    for (const line of excerpt(content, words, length)) terminal.line(INDENT + marked(line, words, bold));
  }
}

/** Scores of words are some units large, fused ones some hundredths. */
function shownScore(score: number): string {
  return Math.abs(score) >= 1 ? score.toFixed(1) : score.toPrecision(2);
}

/** Words of the question that say something, in lower case: short ones are articles and the like. */
function markedWords(question: string): ReadonlySet<string> {
  const words = question.match(WORDS) ?? [];
  return new Set(
    words.filter((word) => word.length > 3 || /\p{Lu}.*\p{Lu}|\d/u.test(word)).map((word) => word.toLowerCase()),
  );
}

const WORDS = /[\p{L}\p{N}_]+/gu;

/** The lines of a passage, one after the other, that have most of these words. */
function excerpt(content: string, words: ReadonlySet<string>, length: number): readonly string[] {
  const lines = content
    .split('\n')
    .map((line) => printableLine(line).trim())
    .filter((line) => line !== '');
  const hits = lines.map(
    (line) => new Set((line.toLowerCase().match(WORDS) ?? []).filter((word) => words.has(word))).size,
  );
  let best = 0;
  let most = -1;
  for (let first = 0; first < lines.length; first++) {
    const sum = hits.slice(first, first + EXCERPT_LINES).reduce((total, count) => total + count, 0);
    if (sum <= most) continue;
    best = first;
    most = sum;
  }
  return lines.slice(best, best + EXCERPT_LINES).map((line) => shortened(line, length));
}

function shortened(line: string, length: number): string {
  return line.length <= length ? line : `${line.slice(0, length - 1).toWellFormed()}…`;
}

function marked(line: string, words: ReadonlySet<string>, mark: (text: string) => string): string {
  return line.replace(WORDS, (word) => (words.has(word.toLowerCase()) ? mark(word) : word));
}
