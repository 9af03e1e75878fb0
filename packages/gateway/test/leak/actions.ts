/** The APIs that have conversations. */
export type ApiName = 'chat' | 'messages' | 'responses';

export const PATHS = {
  chat: '/v1/chat/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
} as const satisfies Record<ApiName, string>;

/** A document as a client sends it. Its text begins with its marker and ends with it. */
export interface ClientDocument {
  readonly id?: string;
  readonly title?: string;
  readonly content: string;
}

/** A request's body as far as the model reads it. */
export interface AskBody {
  readonly messages?: readonly object[];
  readonly input?: readonly object[];
  readonly system?: string;
  readonly instructions?: string;
  readonly documents?: readonly ClientDocument[];
  readonly warmpath?: {
    readonly session?: string;
    readonly forgotten?: 'mark';
    readonly bypass?: boolean;
    readonly deduplicate?: boolean;
  };
  readonly prompt_cache_key?: string;
  readonly safety_identifier?: string | number;
  readonly user?: string | number;
  readonly metadata?: { readonly user_id?: string | number };
  readonly [field: string]: unknown;
}

/** One request for an answer. */
export interface Ask {
  readonly kind: 'ask';
  /** Through which gateway, from 0. */
  readonly gateway: number;
  readonly api: ApiName;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: AskBody;
}

/** Everything that happens in a world, as plain data, so that a part of it can be done again. */
export type Action =
  | Ask
  | { readonly kind: 'restart'; readonly gateway: number }
  | {
      readonly kind: 'delete';
      readonly gateway: number;
      readonly headers: Readonly<Record<string, string>>;
      readonly name: string;
    };

/** How a conversation got its name; the first that is there counts. */
type NamedBy = 'session' | 'header';

/** Whose conversation a request belongs to. */
export interface Identity {
  readonly tenant: string;
  /** Empty where the request names none. */
  readonly user: string;
  readonly name: string | undefined;
  readonly namedBy: NamedBy | undefined;
}

/** The identity that the contract gives a request. */
export function identityOf({ headers, body }: Pick<Ask, 'headers' | 'body'>): Identity {
  const { warmpath } = body;
  const header = headers['x-warmpath-session'];
  const user = userOf(body);
  const of = (name: string | undefined, namedBy: NamedBy | undefined) => ({
    tenant: tenantOf(headers),
    user,
    name,
    namedBy,
  });
  if (warmpath?.session !== undefined) return of(warmpath.session, 'session');
  return header === undefined ? of(undefined, undefined) : of(header, 'header');
}

/** The end user that a body names; empty for none. A number is the user that its decimal text names. */
export function userOf(body: AskBody): string {
  return String(body.safety_identifier ?? body.user ?? body.metadata?.user_id ?? '');
}

/** The client's key, or one name for all who have none. */
export function tenantOf(headers: Readonly<Record<string, string>>): string {
  return headers['authorization'] ?? headers['x-api-key'] ?? headers['api-key'] ?? 'anonymous';
}

/** The messages of a request, and what stands before them in a member of its own. */
export function historyOf({ api, body }: Pick<Ask, 'api' | 'body'>): {
  readonly opening: string;
  readonly messages: readonly object[];
} {
  if (api === 'responses') return { opening: body.instructions ?? '', messages: body.input ?? [] };
  return { opening: api === 'messages' ? (body.system ?? '') : '', messages: body.messages ?? [] };
}

export function isAssistant(message: object): boolean {
  return (message as { role?: unknown }).role === 'assistant';
}

/** What marks a document's text: nobody who was not given it can write it. */
const MARKER = /mk[0-9a-f]{20}/g;

export function markersIn(text: string): ReadonlySet<string> {
  return new Set(text.match(MARKER));
}

/** The markers of a document, or of documents: those of its text, id and title. */
export function markersOf(documents: ClientDocument | readonly ClientDocument[]): ReadonlySet<string> {
  return markersIn(JSON.stringify(documents));
}
