import { useEffect, useState } from 'preact/hooks';
import { Overview } from './overview.tsx';
import { PromptsView } from './prompts.tsx';
import { Prose } from './prose.tsx';
import { RequestsView } from './requests.tsx';
import { SessionsView } from './sessions.tsx';
import {
  chooseTheme,
  connection,
  feed,
  SPANS,
  show,
  spanMinutes,
  THEMES,
  theme,
  tick,
  VIEWS,
  type View,
  view,
} from './state.ts';
import { SystemView } from './system.tsx';
import { TreeView } from './tree.tsx';

export const VIEW_NAMES: Readonly<Record<View, string>> = {
  overview: 'Overview',
  sessions: 'Sessions',
  prompts: 'Prompts',
  tree: 'Knowledge tree',
  requests: 'Requests',
  system: 'System',
};

/** The whole page: what stands above every view, and the view. */
export function Page() {
  const { kind } = connection.value;
  return (
    <>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <header>
        <span class="brand">
          <Mark />
          Warmpath
        </span>
        <nav aria-label="Views">
          {VIEWS.map((name) => (
            <a
              key={name}
              href={`#${name}`}
              aria-current={view.value === name ? 'page' : undefined}
              onClick={(event) => {
                event.preventDefault();
                show(name);
              }}
            >
              {VIEW_NAMES[name]}
            </a>
          ))}
        </nav>
        <div class="controls">
          {view.value === 'overview' && <Span />}
          <Theme />
          <Status />
        </div>
      </header>
      <main id="content" tabIndex={-1}>
        <h1 class="hidden">{VIEW_NAMES[view.value]}</h1>
        <Trouble />
        {kind === 'key' ? <KeyForm /> : kind !== 'refused' && <Content />}
      </main>
    </>
  );
}

function Content() {
  if (tick.value === null) return connection.value.kind === 'gone' ? null : <p class="wait">Connecting …</p>;
  const isStale = connection.value.kind === 'gone';
  return (
    <div class={isStale ? 'stale' : undefined}>
      {view.value === 'overview' && <Overview />}
      {view.value === 'sessions' && <SessionsView />}
      {view.value === 'prompts' && <PromptsView />}
      {view.value === 'tree' && <TreeView />}
      {view.value === 'requests' && <RequestsView />}
      {view.value === 'system' && <SystemView />}
      {feed.key !== null && (
        <p class="under">
          The operator key is kept in this tab.{' '}
          <button type="button" class="link" onClick={() => feed.useKey(null)}>
            Forget it
          </button>
        </p>
      )}
    </div>
  );
}

function Mark() {
  return (
    <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      <rect x="1" y="3" width="18" height="4" rx="1" class="mark-cached" />
      <rect x="1" y="8" width="12" height="4" rx="1" class="mark-cached" />
      <rect x="1" y="13" width="7" height="4" rx="1" class="mark-cached" />
      <rect x="9" y="13" width="6" height="4" rx="1" class="mark-computed" />
    </svg>
  );
}

function Span() {
  return (
    <fieldset class="choice">
      <legend class="hidden">Time shown</legend>
      {SPANS.map((minutes) => (
        <label key={minutes}>
          <input
            type="radio"
            name="span"
            checked={spanMinutes.value === minutes}
            onChange={() => {
              spanMinutes.value = minutes;
            }}
          />
          <span>{minutes === 1_440 ? '24 h' : `${minutes} min`}</span>
        </label>
      ))}
    </fieldset>
  );
}

const THEME_SIGNS = { auto: '◐', light: '○', dark: '●' } as const;

function Theme() {
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length]!;
  return (
    <button type="button" class="quiet theme" onClick={() => chooseTheme(next)} title={`Colours: ${theme.value}`}>
      <span class="hidden">Colours: {theme.value}</span>
      <span aria-hidden="true">
        {THEME_SIGNS[theme.value]}
        <span class="word"> {theme.value}</span>
      </span>
    </button>
  );
}

const STATES = {
  connecting: ['wait', 'Connecting'],
  live: ['good', 'Live'],
  key: ['wait', 'Key needed'],
  refused: ['bad', 'Refused'],
  gone: ['bad', 'Not connected'],
} as const;

function Status() {
  const [look, name] = STATES[connection.value.kind];
  return (
    <span class={`status ${look}`} role="status">
      {name}
    </span>
  );
}

/** What keeps the page from showing anything new. */
function Trouble() {
  const state = connection.value;
  if (state.kind === 'refused') {
    return (
      <div class="notice bad" role="alert">
        <strong>The dashboard is closed.</strong> <Prose text={state.message} />
      </div>
    );
  }
  if (state.kind !== 'gone') return null;
  return (
    <div class="notice bad" role="alert">
      <strong>{state.message}</strong> <Countdown until={state.retryAt} />{' '}
      <button type="button" onClick={() => feed.connect()}>
        Try now
      </button>
    </div>
  );
}

function Countdown({ until }: { readonly until: number }) {
  const [, redraw] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => redraw((turn) => turn + 1), 1_000);
    return () => clearInterval(timer);
  }, [until]);
  const seconds = Math.max(0, Math.ceil((until - Date.now()) / 1_000));
  return (
    <span aria-hidden="true">
      {tick.value !== null && 'The figures below are the last ones. '}
      {seconds === 0 ? 'Connecting …' : `Trying again in ${seconds} s.`}
    </span>
  );
}

function KeyForm() {
  const state = connection.value;
  const isWrong = state.kind === 'key' && state.isWrong;
  return (
    <form
      class="card key"
      onSubmit={(event) => {
        event.preventDefault();
        const key = String(new FormData(event.currentTarget).get('key')).trim();
        if (key !== '') feed.useKey(key);
      }}
    >
      <h2>Operator key</h2>
      <p>
        This gateway shows its figures to its operator. Enter the key of <code>server.operatorKey</code>; it is kept in
        this tab only.
      </p>
      <label>
        Key
        <input
          name="key"
          type="password"
          autocomplete="off"
          required
          autofocus
          aria-invalid={isWrong}
          aria-describedby={isWrong ? 'wrong-key' : undefined}
        />
      </label>
      {isWrong && (
        <p id="wrong-key" class="error" role="alert">
          The gateway does not know this key.
        </p>
      )}
      <button type="submit">Show the dashboard</button>
    </form>
  );
}
