import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { ListedPromptKind, PromptKindList, PromptKindPart } from '../src/prompt-kinds.ts';
import { count, percent, tokens } from './format.ts';
import { Prose } from './prose.tsx';
import { feed } from './state.ts';

const REFRESH_MS = 3_000;
/** Digits of an id that are shown. */
const SHORT_ID = 8;

const list = signal<PromptKindList | null>(null);
const chosen = signal<string | null>(null);
/** Why the list or a choice failed. */
const failure = signal<string | null>(null);
const isBusy = signal(false);

const keyOf = ({ tenant, id }: ListedPromptKind) => `${id} ${tenant}`;

async function refresh(): Promise<void> {
  try {
    list.value = await feed.get<PromptKindList>('/v1/prompts');
    failure.value = null;
  } catch (error) {
    failure.value = (error as Error).message;
  }
}

async function decide({ id, tenant }: ListedPromptKind, choice: object): Promise<void> {
  isBusy.value = true;
  try {
    await feed.post(`/v1/prompts/${encodeURIComponent(id)}?tenant=${encodeURIComponent(tenant)}`, choice);
    await refresh();
  } catch (error) {
    failure.value = (error as Error).message;
  } finally {
    isBusy.value = false;
  }
}

/** The prompts of programs: what each would gain, its text, and whether its documents may move. */
export function PromptsView() {
  useEffect(() => {
    void refresh();
    const timer = setInterval(() => {
      if (!document.hidden && !isBusy.value) void refresh();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const known = list.value;
  const kinds = known?.data ?? [];
  const kind = kinds.find((each) => keyOf(each) === chosen.value) ?? kinds[0];
  return (
    <>
      {failure.value !== null && (
        <div class="notice bad" role="alert">
          {failure.value}
        </div>
      )}
      {known === null && failure.value === null && <p class="wait">Reading …</p>}
      {known !== null && kind === undefined && <NoKinds />}
      {known !== null && kind !== undefined && (
        <div class="kinds">
          <KindList kinds={kinds} shown={kind} />
          <KindDetail kind={kind} list={known} />
        </div>
      )}
    </>
  );
}

function NoKinds() {
  return (
    <div class="card empty">
      <h2>No prompts of programs yet</h2>
      <p>
        The gateway learns the text that a program puts around its documents. It needs 20 prompts with different
        documents. Then the program is listed here, and you can allow that its documents move.
      </p>
    </div>
  );
}

function KindList({ kinds, shown }: { readonly kinds: readonly ListedPromptKind[]; readonly shown: ListedPromptKind }) {
  const hasTenants = new Set(kinds.map(({ tenant }) => tenant)).size > 1;
  return (
    <section class="card">
      <h2>
        Prompts of programs <span class="number">{count(kinds.length)}</span>
      </h2>
      <ul class="kind-list">
        {kinds.map((kind) => (
          <li key={keyOf(kind)}>
            <button
              type="button"
              aria-pressed={kind === shown}
              onClick={() => {
                chosen.value = keyOf(kind);
              }}
            >
              <span class="first-words">{firstWords(kind)}</span>
              <State kind={kind} />
              <span class="beside">
                {hasTenants && `${kind.tenant} · `}
                {count(kind.prompts)} prompts · gain: {gainOf(kind)}
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function KindDetail({ kind, list: known }: { readonly kind: ListedPromptKind; readonly list: PromptKindList }) {
  const { id, tenant, role, prompts, withDocuments, notices, gainIfMapped } = kind;
  return (
    <section class="card kind-detail" aria-label="The prompt">
      <div class="heading">
        <h2>
          Prompt <code>{id.slice(0, SHORT_ID)}</code>
        </h2>
        <State kind={kind} />
      </div>
      <Choices kind={kind} list={known} />
      <ul class="anomalies">
        {notices.map(({ name, preventsGain, message }) => (
          <li key={name} class={preventsGain ? 'bad' : undefined}>
            <b>{preventsGain ? 'Little or no gain as it is' : 'Look before you allow it'}</b>
            <Prose text={message} />
          </li>
        ))}
      </ul>
      <h3>Text of the program</h3>
      <pre class="program" tabIndex={0}>
        {kind.parts.map((part, at) => (
          <Part key={at} part={part} />
        ))}
      </pre>
      <h3>Counts</h3>
      <dl>
        <div>
          <dt>Expected gain</dt>
          <dd>{gainOf(kind)}</dd>
        </div>
        {gainIfMapped !== null && notices.some(({ name }) => name === 'labels-by-position') && (
          <div>
            <dt>Expected gain with mapped labels</dt>
            <dd>{tokensOf(gainIfMapped)}</dd>
          </div>
        )}
        <div>
          <dt>Prompts</dt>
          <dd>{count(prompts)}</dd>
        </div>
        <div>
          <dt>With two documents or more</dt>
          <dd>{count(withDocuments)}</dd>
        </div>
        <div>
          <dt>Role of the message</dt>
          <dd>{role}</dd>
        </div>
        <div>
          <dt>Tenant</dt>
          <dd class="name">{tenant}</dd>
        </div>
      </dl>
    </section>
  );
}

function Choices({ kind, list: known }: { readonly kind: ListedPromptKind; readonly list: PromptKindList }) {
  if (!known.mayChange) {
    return (
      <p class="beside">
        Only the operator of the gateway may allow a prompt (<code>server.operatorKey</code>).
      </p>
    );
  }
  const { state, labels } = kind;
  const isAllowed = state === 'allowed' || state === 'automatic';
  const choices = [
    ['Allow', { state: 'allowed', labels: 'kept' }, isAllowed && labels === 'kept'],
    ['Allow with mapped labels', { state: 'allowed', labels: 'mapped' }, isAllowed && labels === 'mapped'],
    ['Refuse', { state: 'refused' }, state === 'refused'],
    ['Decide later', { state: 'asking' }, state === 'asking'],
  ] as const;
  return (
    <>
      <p class="beside">
        If you allow it, the gateway changes the order of the documents in this prompt. With mapped labels, each
        document keeps a label of its own in the prompt, and the gateway writes your labels into the answer.
      </p>
      <p class="choices">
        {choices.map(([name, choice, isSo]) => (
          <button
            key={name}
            type="button"
            aria-pressed={isSo}
            disabled={isBusy.value || isSo}
            onClick={() => void decide(kind, choice)}
          >
            {name}
          </button>
        ))}
      </p>
      {!known.survivesRestart && (
        <p class="beside">This gateway has no state folder: it forgets the choice when it is restarted.</p>
      )}
    </>
  );
}

const PLACES = { documents: 'documents', changing: 'text that changes' } as const;

function Part({ part }: { readonly part: PromptKindPart }) {
  if (part.kind === 'text') return <span>{part.text}</span>;
  return <mark class={part.kind}>{PLACES[part.kind]}</mark>;
}

const STATES = {
  asking: ['open', 'not decided'],
  allowed: ['good', 'allowed'],
  automatic: ['good', 'allowed automatically'],
  refused: ['bad', 'refused'],
} as const;

function State({ kind: { state, labels } }: { readonly kind: ListedPromptKind }) {
  const [look, name] = STATES[state];
  const isMapped = look === 'good' && labels === 'mapped';
  return <span class={`status ${look}`}>{isMapped ? `${name}, labels mapped` : name}</span>;
}

function firstWords({ parts, id }: ListedPromptKind): string {
  const first = parts.find((part) => part.kind === 'text');
  return first?.kind === 'text' ? first.text.trim().split('\n', 1)[0]! : id;
}

function gainOf({ gain, notices }: ListedPromptKind): string {
  if (gain !== null && gain.tokens > 0) return tokensOf(gain);
  if (notices.some(({ preventsGain }) => preventsGain)) return 'none';
  return gain === null ? 'not known yet' : 'none';
}

function tokensOf(gain: { readonly tokens: number; readonly share: number }): string {
  return `${tokens(gain.tokens)} tokens (${percent(gain.share)})`;
}
