/** One row of the error table. */
export interface ErrorEntry {
  /** HTTP status the gateway and the engine answer with. */
  readonly status: number;
  /** OpenAI's `error.type`. */
  readonly type:
    | 'invalid_request_error'
    | 'server_error'
    | 'upstream_error'
    | 'not_found_error'
    | 'configuration_error';
  /** What is wrong, in one line. */
  readonly message: string;
  /** What to do about it, in one line. */
  readonly remedy: string;
}

/**
 * The one error table: every code that Warmpath can answer with. Codes are stable and are never reused for another
 * meaning; match on `error.code`, never on the message.
 */
export const ERROR_TABLE = {
  WARMPATH_INVALID_JSON: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The body is not valid JSON.',
    remedy: 'Send one complete JSON object; the message says where it stops being one.',
  },
  WARMPATH_INVALID_REQUEST: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A field of the request has the wrong type or value.',
    remedy: 'Correct the field that the message names.',
  },
  WARMPATH_BODY_TOO_LARGE: {
    status: 413,
    type: 'invalid_request_error',
    message: 'The body is larger than this server accepts.',
    remedy:
      'Send fewer or shorter documents, or raise the limit: `server.bodyLimitBytes` of the gateway, `--body-limit-bytes` of the embedded engine.',
  },
  WARMPATH_BODY_TOO_COMPLEX: {
    status: 413,
    type: 'invalid_request_error',
    message: 'The body has more values, or deeper nesting, than this server reads.',
    remedy: 'Send fewer members and array elements, or nest them less deeply.',
  },
  WARMPATH_BODY_STALLED: {
    status: 408,
    type: 'invalid_request_error',
    message: 'The body arrived too slowly.',
    remedy: 'Send the request again over a faster connection.',
  },
  WARMPATH_UNAUTHORIZED: {
    status: 401,
    type: 'invalid_request_error',
    message: 'This server needs a key. The request has no valid key.',
    remedy: 'Send `Authorization: Bearer <key>` with a key that the operator of the gateway gave you.',
  },
  WARMPATH_FORBIDDEN: {
    status: 403,
    type: 'invalid_request_error',
    message: 'This request needs an authenticated caller.',
    remedy: 'Send a key, or ask the operator of the gateway.',
  },
  WARMPATH_HOST_NOT_ALLOWED: {
    status: 403,
    type: 'invalid_request_error',
    message: 'The request names a host that is not this machine, and this gateway checks no keys.',
    remedy:
      'Use http://127.0.0.1 or http://localhost; to serve other names, the operator configures `server.keys` or sets `server.open: true`.',
  },
  WARMPATH_ORIGIN_NOT_ALLOWED: {
    status: 403,
    type: 'invalid_request_error',
    message: 'A web page of another origin sent this request.',
    remedy: 'The operator can list the origin of the page in `server.cors`.',
  },
  WARMPATH_MEDIA_TYPE: {
    status: 415,
    type: 'invalid_request_error',
    message: 'The body has a media type that is not read here.',
    remedy: 'Send JSON in UTF-8 with the header `content-type: application/json`.',
  },
  WARMPATH_PATH_CLOSED: {
    status: 403,
    type: 'invalid_request_error',
    message:
      'This path is closed: tenants share one account at the engine, and what it keeps there could be read by all.',
    remedy: 'The operator can open it: list the path in `passthrough` of the configuration.',
  },
  WARMPATH_CONTENT_ENCODING: {
    status: 415,
    type: 'invalid_request_error',
    message: 'The body is encoded in a way that is not read here.',
    remedy: 'Send the body as it is, or with one `content-encoding`: gzip, deflate or br.',
  },
  WARMPATH_RATE_LIMITED: {
    status: 429,
    type: 'invalid_request_error',
    message: 'This key has used up its share of requests or tokens for now.',
    remedy: 'Wait as long as `retry-after` says, or ask the operator for a larger share.',
  },
  WARMPATH_CONVERSATION_FORGOTTEN: {
    status: 409,
    type: 'invalid_request_error',
    message:
      'The gateway does not remember the earlier turns of this conversation, so their documents would be missing.',
    remedy:
      'Send the documents of the earlier turns again with `warmpath: {"forgotten": "mark"}`, or begin a new conversation without the old answers.',
  },
  WARMPATH_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'There is nothing at this path.',
    remedy: 'Clients use paths under /v1/, such as /v1/chat/completions: a base URL ends in /v1.',
  },
  WARMPATH_MODEL_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'This engine does not serve that model.',
    remedy: 'Ask GET /v1/models for the names it serves.',
  },
  WARMPATH_INVALID_DOCUMENTS: {
    status: 400,
    type: 'invalid_request_error',
    message: '`documents` is not an array of documents.',
    remedy: 'Send `documents: [{id?, title?, content, metadata?}]`.',
  },
  WARMPATH_INVALID_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A document has a field of the wrong type.',
    remedy: 'A document needs a string `content` (or `text`); `id` and `title` are strings, `metadata` is an object.',
  },
  WARMPATH_EMPTY_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A document has no text.',
    remedy: 'Leave documents without text out.',
  },
  WARMPATH_DOCUMENT_TOO_LARGE: {
    status: 413,
    type: 'invalid_request_error',
    message: 'A document is longer than the limit.',
    remedy: 'Split it into passages, or raise `server.bodyLimitBytes` in the configuration.',
  },
  WARMPATH_TOO_MANY_DOCUMENTS: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The request has more documents than the limit.',
    remedy: 'Send fewer documents, or raise `server.bodyLimitBytes` in the configuration.',
  },
  WARMPATH_DUPLICATE_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The same document appears twice. The first one is kept.',
    remedy: 'Nothing is lost; de-duplicate in retrieval to silence this warning.',
  },
  WARMPATH_CONFLICTING_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'Two different documents have the same id; the later one was given an id of its own.',
    remedy: 'Give every passage its own id.',
  },
  WARMPATH_UNKNOWN_POLICY: {
    status: 400,
    type: 'invalid_request_error',
    message: 'There is no ordering policy of that name.',
    remedy: 'Use one of retrieval, sorted, hotness, greedy, exact, foresight.',
  },
  WARMPATH_INVALID_MAX_SHIFT: {
    status: 400,
    type: 'invalid_request_error',
    message: '`maxShift` is not a whole number of 0 or more.',
    remedy: 'Leave it out, or say by how many places a document may move.',
  },
  WARMPATH_INVALID_SHIFT_PRICE: {
    status: 400,
    type: 'invalid_request_error',
    message: '`shiftPrice` is not a number from 0 to 1,000,000,000.',
    remedy: 'Leave it out, or say how many tokens a place costs by which a document moves.',
  },
  WARMPATH_INVALID_PIN: {
    status: 400,
    type: 'invalid_request_error',
    message: '`pin` does not name documents of this request.',
    remedy: 'Pin by the ids of documents in the same request.',
  },
  WARMPATH_CONTEXT_TOO_LONG: {
    status: 400,
    type: 'invalid_request_error',
    message: "The prompt and the tokens asked for do not fit the model's context.",
    remedy: 'Send fewer documents or ask for fewer tokens.',
  },
  WARMPATH_EMPTY_PROMPT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The prompt is empty.',
    remedy: 'Send at least one token or one message.',
  },
  WARMPATH_CHAT_TEMPLATE: {
    status: 400,
    type: 'invalid_request_error',
    message: "The model's chat template refused these messages.",
    remedy: "Check the order and the roles of the messages against the model's template.",
  },
  WARMPATH_NOT_TRANSLATABLE: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The engine speaks chat completions only, which have no equivalent for a part of this request.',
    remedy: 'Leave out what `param` names, or use an engine that speaks this API itself.',
  },
  WARMPATH_INVALID_VECTOR: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A vector cannot be stored or searched for.',
    remedy: 'Send vectors of finite numbers in the dimension of the collection, and with `cosine` none of zeros alone.',
  },
  WARMPATH_INDEX_FILE: {
    status: 500,
    type: 'configuration_error',
    message: 'The file is not a readable vector index.',
    remedy: 'Build the index again. The documents and their vectors are kept.',
  },
  WARMPATH_EMBEDDING_INVALID: {
    status: 502,
    type: 'upstream_error',
    message: 'The embedding endpoint answered with something other than the vectors that were asked for.',
    remedy: "Check the endpoint's URL and model; a collection is searched with the model that it was built with.",
  },
  WARMPATH_RETRIEVAL_UNREACHABLE: {
    status: 502,
    type: 'upstream_error',
    message: 'A server that retrieval needs cannot be reached.',
    remedy: "Check that the server runs at the URL in the message or in the gateway's log.",
  },
  WARMPATH_RETRIEVAL_TIMEOUT: {
    status: 504,
    type: 'upstream_error',
    message: 'A server that retrieval needs did not answer in time.',
    remedy:
      'Relieve that server, or allow it more time: `collections.embeddings.timeoutMs` for passages, `questionTimeoutMs` for questions.',
  },
  WARMPATH_RETRIEVAL_ERROR: {
    status: 502,
    type: 'upstream_error',
    message: 'A server that retrieval needs answered with an error.',
    remedy: "See that server's own message and log.",
  },
  WARMPATH_OVERLOADED: {
    status: 429,
    type: 'server_error',
    message: 'The server has no room for this request now.',
    remedy:
      'Try again after the seconds that Retry-After names; the operator can raise the limit that the message names, or `queue.capacity`.',
  },
  WARMPATH_PLAN_LIMIT: {
    status: 422,
    type: 'invalid_request_error',
    message: 'Planning this batch takes more time or memory than is allowed.',
    remedy: 'Send a smaller batch, or raise limits.memoryBytes in the configuration.',
  },
  WARMPATH_SHUTTING_DOWN: {
    status: 503,
    type: 'server_error',
    message: 'The server is shutting down.',
    remedy: 'Send the request to another instance, or try again later.',
  },
  WARMPATH_STORE_UNAVAILABLE: {
    status: 503,
    type: 'server_error',
    message: 'The conversation store does not answer.',
    remedy: 'Check it with `warmpath check-config --connect`, then try again.',
  },
  WARMPATH_COLLECTION_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'There is no collection of that name.',
    remedy: 'See `warmpath collections list` or GET /v1/collections; `warmpath ingest` makes one.',
  },
  WARMPATH_COLLECTION_STORED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'This collection lives in a database that is filled and listed by its own tools.',
    remedy: 'Write to the database; searching the collection and answering from it works here.',
  },
  WARMPATH_COLLECTION_NAME: {
    status: 400,
    type: 'invalid_request_error',
    message: 'This cannot be the name of a collection.',
    remedy: 'Use 1 to 64 lower-case letters, digits, `-` and `_`, beginning with a letter or a digit.',
  },
  WARMPATH_COLLECTION_BUSY: {
    status: 409,
    type: 'invalid_request_error',
    message: 'Another process is writing to this collection.',
    remedy: 'Try again when it has finished. Searching works meanwhile.',
  },
  WARMPATH_COLLECTION_EMBEDDINGS: {
    status: 409,
    type: 'invalid_request_error',
    message: 'The vectors of this collection come from another model than the one that is configured.',
    remedy:
      'Configure that model, or fill a new collection: `warmpath collections export` and `import` take the documents over.',
  },
  WARMPATH_COLLECTION_VECTORS: {
    status: 500,
    type: 'server_error',
    message: 'The vectors of this collection cannot be searched. Its words are.',
    remedy:
      'Ask for fewer dimensions (`collections.embeddings.dimensions`), divide the documents among collections, or keep them in a vector database (`collections.stores`).',
  },
  WARMPATH_COLLECTION_UNREADABLE: {
    status: 500,
    type: 'server_error',
    message: 'The files of a collection cannot be read.',
    remedy:
      'Check who may read them and that the disk is not full. Else restore the folder of this collection from a backup, or delete it and ingest again.',
  },
  WARMPATH_COLLECTION_UNWRITABLE: {
    status: 500,
    type: 'server_error',
    message: 'A collection cannot be written to.',
    remedy: 'Make room on the disk, or check who may write there; then do the same again: what was written is kept.',
  },
  WARMPATH_UNREADABLE_FILE: {
    status: 422,
    type: 'invalid_request_error',
    message: 'A file or document cannot be read as text.',
    remedy: 'Correct or leave out what the message names.',
  },
  WARMPATH_UPSTREAM_UNREACHABLE: {
    status: 502,
    type: 'upstream_error',
    message: 'The engine cannot be reached.',
    remedy: 'Check that the engine runs at the configured URL (`warmpath doctor`).',
  },
  WARMPATH_UPSTREAM_TIMEOUT: {
    status: 504,
    type: 'upstream_error',
    message: 'The engine did not answer in time.',
    remedy: 'Relieve the engine, or raise `upstream.timeoutMs` in the configuration.',
  },
  WARMPATH_UPSTREAM_CUT: {
    status: 502,
    type: 'upstream_error',
    message: 'The engine closed the connection before the answer was complete.',
    remedy: 'The answer so far is incomplete; send the request again.',
  },
  WARMPATH_UPSTREAM_ERROR: {
    status: 502,
    type: 'upstream_error',
    message: 'The engine answered with an error.',
    remedy: "See the engine's own message and log.",
  },
  WARMPATH_LOOP: {
    status: 508,
    type: 'configuration_error',
    message: 'This request has come through this gateway before: the address of its engine leads back to a gateway.',
    remedy: 'Set `upstream.url` (or `--engine`) to the address of the engine, not of a gateway.',
  },
  WARMPATH_GATEWAY_UNREACHABLE: {
    status: 502,
    type: 'upstream_error',
    message: 'The gateway cannot be reached.',
    remedy: 'Check that `warmpath serve` or `warmpath up` runs at the address that was given.',
  },
  WARMPATH_CLIENT_CLOSED: {
    status: 499,
    type: 'invalid_request_error',
    message: 'The client closed the connection before the answer was complete.',
    remedy: 'None. The engine has stopped this request.',
  },
  WARMPATH_CONFIG_NOT_FOUND: {
    status: 500,
    type: 'configuration_error',
    message: 'The configuration file cannot be read.',
    remedy: 'Check the path given with --config.',
  },
  WARMPATH_CONFIG_INVALID: {
    status: 500,
    type: 'configuration_error',
    message: 'The configuration is not valid.',
    remedy: 'Correct the key that the path names (`warmpath check-config`).',
  },
  WARMPATH_CONFIG_SYNTAX: {
    status: 500,
    type: 'configuration_error',
    message: 'The configuration file is not valid YAML or JSON.',
    remedy: 'Correct the line that the message names.',
  },
  WARMPATH_CONFIG_UNKNOWN_KEY: {
    status: 500,
    type: 'configuration_error',
    message: 'The configuration has an unknown key.',
    remedy: 'Remove it, or correct its name.',
  },
  WARMPATH_CONFIG_VARIABLE: {
    status: 500,
    type: 'configuration_error',
    message: 'The configuration names an environment variable that is not set.',
    remedy: 'Set it, or give a default after `:-` inside the braces.',
  },
  WARMPATH_NATIVE_MISSING: {
    status: 500,
    type: 'configuration_error',
    message: 'The native llama.cpp library is not installed.',
    remedy: 'Run `npm install @node-llama-cpp/<platform>@3.22.1` beside Warmpath.',
  },
  WARMPATH_NATIVE_MISMATCH: {
    status: 500,
    type: 'configuration_error',
    message: 'The native llama.cpp library is not the build that this engine was written for.',
    remedy: 'Install the exact version that the message names.',
  },
  WARMPATH_MODEL_FILE: {
    status: 500,
    type: 'configuration_error',
    message: 'The model file is not a GGUF file that can be loaded.',
    remedy: 'Check the path, and download the file again if it was cut short.',
  },
  WARMPATH_MODEL_SPEC: {
    status: 500,
    type: 'configuration_error',
    message: 'The engine cannot read the name of the model.',
    remedy: 'Use a path to a .gguf file, hf:org/repo/file.gguf, or demo.',
  },
  WARMPATH_DOWNLOAD_FAILED: {
    status: 500,
    type: 'configuration_error',
    message: 'The model could not be downloaded.',
    remedy: 'Check the name and the network; the part that arrived is kept and the next try resumes.',
  },
  WARMPATH_ENGINE_FAILED: {
    status: 500,
    type: 'server_error',
    message: 'The engine failed while it computed.',
    remedy: "Send the request again; report it with the engine's log if it happens twice.",
  },
  WARMPATH_PORT_IN_USE: {
    status: 500,
    type: 'configuration_error',
    message: 'The port is taken by another program.',
    remedy: 'Choose another with --port (0 picks a free one), or stop the program that listens there.',
  },
  WARMPATH_USAGE: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The command line is not valid.',
    remedy: 'See `warmpath --help` or `warmpath <command> --help`.',
  },
  WARMPATH_ENGINE_EXITED: {
    status: 500,
    type: 'server_error',
    message: 'The engine process ended unexpectedly.',
    remedy: "Start it alone with `warmpath engine` to see why; report it with the engine's log if it happens twice.",
  },
  WARMPATH_INTERNAL: {
    status: 500,
    type: 'server_error',
    message: 'Warmpath has an internal error.',
    remedy: 'Report it with the request id.',
  },
} as const satisfies Record<string, ErrorEntry>;

/** A code of the error table. */
export type ErrorCode = keyof typeof ERROR_TABLE;

/** Something that was mended instead of refused; same codes, same paths as errors. */
export interface Warning {
  readonly code: ErrorCode;
  /** Path into the input, for instance `documents[3].id`. */
  readonly path: string;
  readonly message: string;
}

const MARKER = Symbol.for('warmpath.error');

export interface WarmpathErrorOptions {
  /** Path into the input, for instance `documents[3].content`. */
  readonly path?: string;
  /** What exactly was wrong; the table's message when left out. */
  readonly detail?: string;
  /** Whole seconds after which it may be worth trying again: the answer's `Retry-After`. */
  readonly retryAfterS?: number;
  readonly cause?: unknown;
}

/** Every error that Warmpath raises on purpose. Recognise it with `WarmpathError.isInstance`, then read `code`. */
export class WarmpathError extends Error {
  override readonly name = 'WarmpathError';
  readonly [MARKER] = true;
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: ErrorEntry['type'];
  readonly remedy: string;
  readonly path: string | undefined;
  readonly retryAfterS: number | undefined;

  constructor(code: ErrorCode, options: WarmpathErrorOptions = {}) {
    const entry = ERROR_TABLE[code];
    const detail = options.detail ?? entry.message;
    super(options.path === undefined ? detail : `${options.path}: ${detail}`, { cause: options.cause });
    this.code = code;
    this.status = entry.status;
    this.type = entry.type;
    this.remedy = entry.remedy;
    this.path = options.path;
    this.retryAfterS = options.retryAfterS;
  }

  /** Works across duplicated copies of this package, unlike `instanceof`. */
  static isInstance(error: unknown): error is WarmpathError {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[MARKER] === true;
  }

  /**
   * The body that OpenAI clients understand: `{error: {message, type, param, code}}`, with the remedy beside it and, as
   * users of SDKs see the message alone, at the end of it.
   */
  toOpenAI(): { error: { message: string; type: string; param: string | null; code: ErrorCode; remedy: string } } {
    const { type, path: param = null, code, remedy } = this;
    return { error: { message: withRemedy(this.message, remedy), type, param, code, remedy } };
  }
}

function withRemedy(message: string, remedy: string): string {
  if (message.endsWith(remedy)) return message;
  return `${message}${/[.!?]$/.test(message) ? '' : '.'} ${remedy}`;
}

/** Why a file cannot be read or written, in words, from the error of the operating system. */
export function fileErrorReason(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  if (typeof code !== 'string') return 'the system gives no reason';
  return FILE_ERRORS[code] ?? code;
}

const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or folder',
  EACCES: 'this user may not (permission denied)',
  EPERM: 'this user may not (permission denied)',
  EISDIR: 'it is a folder',
  ENOTDIR: 'a part of its path is no folder',
  ENOSPC: 'the disk is full',
  EROFS: 'the file system is read-only',
  EMFILE: 'too many files are open',
  ELOOP: 'its links lead in a circle',
  ERR_FS_FILE_TOO_LARGE: 'it is too large to be read at once (2 GiB)',
};
