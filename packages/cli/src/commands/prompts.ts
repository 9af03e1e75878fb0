import { WarmpathError } from '@warmpath/core';
import type { ListedPromptKind, PromptKindList } from '@warmpath/gateway';
import { type Command, Option } from 'commander';
import { addCommand, type CommandContext, examplesHelp } from '../command-context.js';
import type { EngineClient } from '../engine-client.js';
import { EXIT_CODES_HELP } from '../exit-codes.js';
import { addGatewayOption } from '../options.js';
import { percent, type Terminal } from '../terminal.js';
import { withGateway } from '../with-gateway.js';

/** Digits of an id that the list shows; more where they are needed to tell kinds apart. */
const SHORT_ID = 6;
/** Lines of a program's text in the list. */
const LIST_LINES = 12;
const INDENT = '    ';

const ID_HELP = `
A kind is named by its id, or by the first digits of it. A consent changes prompts of this kind from the next request on,
in all gateways that share a store.`;

interface PromptsOptions {
  readonly gateway: string;
  readonly keyEnv?: string;
  readonly tenant?: string;
}

/** Adds `warmpath prompts`. */
export function addPromptsCommand(program: Command, context: CommandContext): void {
  const group = program
    .command('prompts')
    .description('see which prompts of programs the gateway has found, and allow that their documents move')
    .addHelpText('after', examplesHelp('prompts'))
    .addHelpText('after', EXIT_CODES_HELP);
  addOptions(addCommand(group, 'list', 'the kinds, what they gain and their text', { isDefault: true })).action(
    (options: PromptsOptions) => withKinds(options, context, (gateway) => printList(gateway, context.terminal)),
  );
  addKind(addCommand(group, 'show', 'one kind, with its whole text')).action((id: string, options: PromptsOptions) =>
    withKinds(options, context, async (gateway) => {
      const { kind, isAlone } = await gateway.find(id);
      printKind(context.terminal, kind, { isAlone, maxLines: Number.POSITIVE_INFINITY });
      context.terminal.data(kind);
    }),
  );
  const allow = addKind(addCommand(group, 'allow', 'let the documents of a kind move'));
  allow
    .addOption(
      new Option(
        '--labels <how>',
        'mapped: stable labels in the prompt, and the given ones in the answer (default where labels count positions)',
      ).choices(['kept', 'mapped']),
    )
    .action((id: string, { labels, ...options }: PromptsOptions & { readonly labels?: string }) =>
      decide(id, { state: 'allowed', ...(labels !== undefined && { labels }) }, { options, context }),
    );
  addKind(addCommand(group, 'refuse', 'never let the documents of a kind move')).action(
    (id: string, options: PromptsOptions) => decide(id, { state: 'refused' }, { options, context }),
  );
  addKind(addCommand(group, 'forget', 'forget what was chosen for a kind')).action(
    (id: string, options: PromptsOptions) => decide(id, { state: 'asking' }, { options, context }),
  );
}

function addOptions(command: Command): Command {
  return addGatewayOption(command)
    .option('--key-env <name>', "environment variable that holds the gateway's operator key")
    .option('--tenant <name>', 'of one tenant (default: all)');
}

function addKind(command: Command): Command {
  return addOptions(command).argument('<id>', 'the kind').addHelpText('after', ID_HELP);
}

/** The prompt kinds of a running gateway. */
class KindsClient {
  readonly #client: EngineClient;
  readonly #query: string;
  readonly #signal: AbortSignal;

  constructor(client: EngineClient, tenant: string | undefined, signal: AbortSignal) {
    this.#client = client;
    this.#query = tenant === undefined ? '' : `?tenant=${encodeURIComponent(tenant)}`;
    this.#signal = signal;
  }

  async list(): Promise<PromptKindList> {
    return (await this.#client.get(`/v1/prompts${this.#query}`, this.#signal)) as PromptKindList;
  }

  /**
   * The kind whose id begins so.
   *
   * @throws WarmpathError `WARMPATH_USAGE` where none does, or several do.
   */
  async find(prefix: string): Promise<{ readonly kind: ListedPromptKind; readonly isAlone: boolean }> {
    const { data } = await this.list();
    const found = data.filter(({ id }) => id.startsWith(prefix.toLowerCase()));
    const [kind] = found;
    const isAlone = new Set(data.map(({ tenant }) => tenant)).size < 2;
    if (kind !== undefined && found.length === 1) return { kind, isAlone };
    throw new WarmpathError('WARMPATH_USAGE', { path: 'id', detail: notOne(prefix, found) });
  }

  async decide({ id, tenant }: ListedPromptKind, choice: object): Promise<ListedPromptKind> {
    const query = `?tenant=${encodeURIComponent(tenant)}`;
    return (await this.#client.post(
      `/v1/prompts/${encodeURIComponent(id)}${query}`,
      choice,
      this.#signal,
    )) as ListedPromptKind;
  }
}

function notOne(prefix: string, found: readonly ListedPromptKind[]): string {
  if (found.length === 0) return `no prompt kind has an id that begins with ${prefix}; \`warmpath prompts\` lists them`;
  const ids = new Set(found.map(({ id }) => id));
  if (ids.size > 1) return `several ids begin with ${prefix}: ${[...ids].join(', ')}`;
  const tenants = found.map(({ tenant }) => tenant).join(', ');
  return `several tenants have this kind: name one with --tenant (${tenants})`;
}

function withKinds(
  { tenant, ...address }: PromptsOptions,
  { environment }: CommandContext,
  ask: (gateway: KindsClient) => Promise<void>,
): Promise<void> {
  return withGateway(address, environment, (client, signal) => ask(new KindsClient(client, tenant, signal)));
}

async function printList(gateway: KindsClient, terminal: Terminal): Promise<void> {
  const list = await gateway.list();
  const { data } = list;
  terminal.data(list);
  if (data.length === 0) {
    terminal.line(
      'The gateway has found no prompt kind yet. It needs 20 prompts of a program, with different documents.',
    );
    return;
  }
  const isAlone = new Set(data.map(({ tenant }) => tenant)).size < 2;
  const digits = digitsOf(data.map(({ id }) => id));
  const rows = data.map((kind) => [
    kind.id.slice(0, digits),
    stateOf(kind),
    gainOf(kind),
    kind.prompts.toLocaleString('en'),
    ...(isAlone ? [] : [kind.tenant]),
  ]);
  terminal.table([['kind', 'state', 'gain', 'prompts', ...(isAlone ? [] : ['tenant'])], ...rows], '');
  for (const kind of data) {
    terminal.line();
    printKind(terminal, { ...kind, id: kind.id.slice(0, digits) }, { isAlone, maxLines: LIST_LINES });
  }
}

/** Digits of ids that tell them apart. */
function digitsOf(ids: readonly string[]): number {
  const all = new Set(ids);
  let digits = SHORT_ID;
  while (new Set([...all].map((id) => id.slice(0, digits))).size < all.size) digits++;
  return digits;
}

function stateOf({ state, labels }: ListedPromptKind): string {
  return labels === 'mapped' && state === 'allowed' ? 'allowed, labels mapped' : state;
}

function gainOf({ gain, notices }: ListedPromptKind): string {
  if (notices.some(({ preventsGain }) => preventsGain) && !(gain !== null && gain.tokens > 0)) return 'none';
  if (gain === null) return 'not known yet';
  return `${Math.round(gain.tokens).toLocaleString('en')} tokens (${percent(gain.share, 0)})`;
}

/** What a kind gains, why not, and its text with the places of the documents. */
function printKind(
  terminal: Terminal,
  kind: ListedPromptKind,
  { isAlone, maxLines }: { readonly isAlone: boolean; readonly maxLines: number },
): void {
  const { bold, yellow, dim } = terminal.style;
  const { id, role, prompts, withDocuments, tenant, notices } = kind;
  const counts = `${prompts.toLocaleString('en')} prompts, ${withDocuments.toLocaleString('en')} with documents`;
  const of = isAlone ? '' : `, tenant ${tenant}`;
  terminal.line(`${bold(id)}  ${stateOf(kind)}  ${dim(`${counts}, role ${role}${of}`)}`);
  for (const { preventsGain, message } of notices) {
    terminal.line(`  ${yellow(preventsGain ? 'no gain' : 'look')}  ${message}`);
  }
  const lines = linesOf(kind);
  for (const line of lines.slice(0, maxLines)) terminal.line(`${INDENT}${line.startsWith('>') ? bold(line) : line}`);
  const rest = lines.length - maxLines;
  if (rest > 0) terminal.line(dim(`${INDENT}… ${rest} more lines: warmpath prompts show ${id}`));
}

/** The program's text behind `|`, and places for other text behind `>`. */
function linesOf({ parts }: ListedPromptKind): readonly string[] {
  return parts.flatMap((part) => {
    if (part.kind === 'text') return part.text.split('\n').map((line) => `| ${line}`);
    return [part.kind === 'documents' ? '> documents' : '> text that changes'];
  });
}

function decide(
  id: string,
  choice: { readonly state: string; readonly labels?: string },
  { options, context }: { readonly options: PromptsOptions; readonly context: CommandContext },
): Promise<void> {
  return withKinds(options, context, async (gateway) => {
    const { kind } = await gateway.find(id);
    const decided = await gateway.decide(kind, choice);
    const { terminal } = context;
    terminal.data(decided);
    terminal.line(`${kind.id}: ${stateOf(decided)}`);
    if (!(await gateway.list()).survivesRestart) {
      terminal.note('This gateway has no state folder: it forgets the choice when it is restarted.');
    }
  });
}
