import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { ListedSession, SessionList } from '../src/sessions.ts';
import { share } from './figures.ts';
import { causeText, count, duration, money, percent, tokens } from './format.ts';
import { Prose } from './prose.tsx';
import { feed, selectedRequest, settings, show } from './state.ts';

const REFRESH_MS = 3_000;
/** Digits of an id that are shown. */
const SHORT_ID = 8;

const list = signal<SessionList | null>(null);
const chosen = signal<string | null>(null);
const failure = signal<string | null>(null);

async function refresh(): Promise<void> {
  try {
    list.value = await feed.get<SessionList>('/v1/sessions');
    failure.value = null;
  } catch (error) {
    failure.value = (error as Error).message;
  }
}

/** The sessions of agents and other clients: their tokens, and what each break of a prefix cost. */
export function SessionsView() {
  useEffect(() => {
    void refresh();
    const timer = setInterval(() => {
      if (!document.hidden) void refresh();
    }, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const sessions = list.value?.data ?? [];
  const session = sessions.find(({ id }) => id === chosen.value) ?? sessions[0];
  return (
    <>
      {failure.value !== null && (
        <div class="notice bad" role="alert">
          {failure.value}
        </div>
      )}
      {list.value === null && failure.value === null && <p class="wait">Reading …</p>}
      {list.value !== null && session === undefined && <NoSessions />}
      {session !== undefined && (
        <div class="kinds">
          <Sessions sessions={sessions} shown={session} />
          <Session session={session} />
        </div>
      )}
    </>
  );
}

function NoSessions() {
  return (
    <div class="card empty">
      <h2>No sessions yet</h2>
      <p>
        A request belongs to a session where it names its conversation, or where its agent does: Claude Code, Codex and
        OpenCode send a header for that. Sessions are listed when their first prompt is answered.
      </p>
    </div>
  );
}

function Sessions({ sessions, shown }: { readonly sessions: readonly ListedSession[]; readonly shown: ListedSession }) {
  return (
    <section class="card">
      <h2>
        Sessions <span class="number">{count(sessions.length)}</span>
      </h2>
      <ul class="kind-list">
        {sessions.map((session) => {
          const { id, sums, idleMs } = session;
          return (
            <li key={id}>
              <button
                type="button"
                aria-pressed={session === shown}
                onClick={() => {
                  chosen.value = id;
                }}
              >
                <span class="first-words">{nameOf(session)}</span>
                <span class={`status ${sums.lostTokens > 0 ? 'bad' : 'good'}`}>
                  {sums.lostTokens > 0 ? `${tokens(sums.lostTokens)} tokens lost` : 'nothing lost'}
                </span>
                <span class="beside">
                  {count(sums.prompts)} {sums.prompts === 1 ? 'prompt' : 'prompts'} ·{' '}
                  {percent(share(sums.cachedTokens, sums.promptTokens))} cached · idle {duration(idleMs / 1_000)}
                </span>
              </button>
            </li>
          );
        })}
      </ul>
    </section>
  );
}

function Session({ session }: { readonly session: ListedSession }) {
  const { id, client, startedBy, model, tenant, sums, breaks } = session;
  const facts: readonly (readonly [string, string | null])[] = [
    ['Prompts', count(sums.prompts)],
    ['Prompt tokens', tokens(sums.promptTokens)],
    ['Read from the cache', tokens(sums.cachedTokens)],
    ['Written into the cache', tokens(sums.cacheWriteTokens)],
    ['Computed', tokens(sums.computedTokens)],
    ['Lost', tokens(sums.lostTokens)],
    ['Cost', sums.cost === null ? null : money(sums.cost)],
    ['Cost of what was lost', sums.lostCost === null ? null : money(sums.lostCost)],
    ['Named by', client],
    ['Started by', startedBy?.slice(0, SHORT_ID) ?? null],
    ['Model', model],
    ['Tenant', settings.value?.names === true ? tenant : null],
  ];
  return (
    <section class="card kind-detail" aria-label="The session">
      <div class="heading">
        <h2>
          Session <code>{id}</code>
        </h2>
      </div>
      <p class="beside">
        Lost tokens were in the cache for an earlier prompt of the session. The engine computed or wrote them again.
      </p>
      <dl>
        {facts.map(
          ([name, value]) =>
            value !== null && (
              <div key={name}>
                <dt>{name}</dt>
                <dd class="name">{value}</dd>
              </div>
            ),
        )}
      </dl>
      <h3>
        Breaks <span class="number">{count(sums.breaks)}</span>
      </h3>
      {breaks.length === 0 && <p class="beside">Each prompt went on with the one before it.</p>}
      <ul class="anomalies">
        {breaks.map((found) => (
          <li key={found.requestId} class={found.lostTokens > 0 ? 'bad' : undefined}>
            <b>
              {causeText(found.cause)}: {tokens(found.lostTokens)} tokens
              {found.cost !== null && `, ${money(found.cost)}`}
            </b>
            <Prose text={found.remedy} />
            <p class="beside">
              {found.piece !== null && (
                <>
                  At <code>{found.piece}</code>, character {count(found.offset)}.{' '}
                </>
              )}
              {found.isAvoidable && 'The gateway can avoid it. '}
              {duration(found.agoMs / 1_000)} ago.{' '}
              <button
                type="button"
                class="link"
                onClick={() => {
                  selectedRequest.value = found.requestId;
                  show('requests');
                }}
              >
                Show the request
              </button>
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function nameOf({ client, id, startedBy }: ListedSession): string {
  return `${client} ${id.slice(0, SHORT_ID)}${startedBy === null ? '' : ' (agent)'}`;
}
