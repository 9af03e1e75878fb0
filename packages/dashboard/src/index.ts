import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';

export type { CaptureState } from './capture.js';
export type {
  CollectionStatus,
  CollectionsStatus,
  EngineStatus,
  FeedSettings,
  FeedStart,
  FeedTick,
  HistoryTree,
  RequestSummary,
  TrafficSlot,
  TrafficSums,
  TreeRow,
  TreeSnapshot,
} from './feed.js';
export { NO_TRAFFIC } from './feed.js';
export type { ListedPromptKind, PromptKindList } from './prompt-kinds.js';
export type { ListedSession, SessionList } from './sessions.js';

/** The page, and the headers without which it must not be served. */
export interface DashboardPage {
  readonly html: Buffer;
  /** The same for browsers that take `content-encoding: gzip`: a third of the bytes. */
  readonly gzip: Buffer;
  readonly headers: Readonly<Record<string, string>>;
}

/** Where the build puts the page. */
const PAGE = new URL('./index.html', import.meta.url);

let loading: Promise<DashboardPage | undefined> | undefined;

/** Reads the page, once; `undefined` where it was not built (`npm run build -w packages/dashboard`). */
export function loadDashboardPage(): Promise<DashboardPage | undefined> {
  loading ??= readFile(PAGE).then(
    (html) => ({ html, gzip: gzipSync(html, { level: 9 }), headers: headersFor(html.toString('utf8')) }),
    () => {
      loading = undefined;
      return undefined;
    },
  );
  return loading;
}

/** The page may run its own script and style, and ask the gateway that served it; nothing else. */
function headersFor(html: string): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `script-src ${hashesOf(html, /<script[^>]*>([\s\S]*?)<\/script>/g)}`,
    `style-src ${hashesOf(html, /<style[^>]*>([\s\S]*?)<\/style>/g)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ];
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy.join('; '),
    'cache-control': 'no-cache',
    vary: 'accept-encoding',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  };
}

function hashesOf(html: string, elements: RegExp): string {
  const texts = [...html.matchAll(elements)].map(([, text]) => text!);
  return texts.map((text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`).join(' ');
}
