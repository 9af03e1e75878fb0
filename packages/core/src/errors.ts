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
  /** One line: what is wrong. */
  readonly message: string;
  /** One line: what to do. */
  readonly remedy: string;
  /** The code in the body of an HTTP answer, where OpenAI's clients look for one of their own. */
  readonly openAICode?: string;
}

/**
 * The error table: every code that Warmpath can return. A code is stable and never gets another meaning. Match on
 * `error.code`, not on the message.
 */
export const ERROR_TABLE = {
  WARMPATH_INVALID_JSON: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The body is not valid JSON.',
    remedy: 'Send one complete JSON object. The message says where the error is.',
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
    message: 'The body has too many values, or is nested too deeply.',
    remedy: 'Send fewer members and array elements, or nest them less.',
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
    message: 'This request needs a key.',
    remedy: 'Send a key that the operator of the gateway gave you.',
  },
  WARMPATH_HOST_NOT_ALLOWED: {
    status: 403,
    type: 'invalid_request_error',
    message: 'The request names a host that is not this machine, and this gateway checks no keys.',
    remedy:
      'Use http://127.0.0.1 or http://localhost. To serve other names, the operator sets `server.keys` or `server.open: true`.',
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
    message: 'The media type of the body is not supported.',
    remedy: 'Send JSON in UTF-8 with the header `content-type: application/json`.',
  },
  WARMPATH_PATH_CLOSED: {
    status: 403,
    type: 'invalid_request_error',
    message:
      'This path is closed: tenants share one account at the engine, so each could read what others stored there.',
    remedy: 'The operator can open it: add the path to `passthrough` in the configuration.',
  },
  WARMPATH_CONTENT_ENCODING: {
    status: 415,
    type: 'invalid_request_error',
    message: 'The content encoding of the body is not supported.',
    remedy: 'Send the body without encoding, or with one `content-encoding`: gzip, deflate or br.',
  },
  WARMPATH_RATE_LIMITED: {
    status: 429,
    type: 'invalid_request_error',
    message: 'This key has reached its limit of requests or tokens.',
    remedy: 'Wait the seconds in `retry-after`, or ask the operator for a higher limit.',
  },
  WARMPATH_CONVERSATION_FORGOTTEN: {
    status: 409,
    type: 'invalid_request_error',
    message:
      'The gateway has forgotten earlier turns of this conversation. Their documents would be missing from the prompt.',
    remedy:
      'Send the documents of the earlier turns again with `warmpath: {"forgotten": "mark"}`, or start a new conversation without the old answers.',
  },
  WARMPATH_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'There is nothing at this path.',
    remedy: 'Use paths under /v1/, such as /v1/chat/completions. The base URL of a client ends in /v1.',
  },
  WARMPATH_MODEL_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'This engine does not serve that model.',
    remedy: 'See GET /v1/models for the names of models.',
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
    remedy:
      'A document is a string or an object with its text under `content`, or a name that other libraries use. `id` is a string or a number, `title` a string, `metadata` an object.',
  },
  WARMPATH_EMPTY_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A document has no text.',
    remedy: 'Omit documents without text.',
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
    remedy: 'Nothing is lost. De-duplicate in retrieval to avoid this warning.',
  },
  WARMPATH_CONFLICTING_DOCUMENT: {
    status: 400,
    type: 'invalid_request_error',
    message: 'Two different documents have the same id. The later one got another id.',
    remedy: 'Give each passage its own id.',
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
    remedy: 'Omit it, or set the number of places that a document may move.',
  },
  WARMPATH_INVALID_SHIFT_PRICE: {
    status: 400,
    type: 'invalid_request_error',
    message: '`shiftPrice` is not a number from 0 to 1,000,000,000.',
    remedy: 'Omit it, or set the price in tokens of each place that a document moves.',
  },
  WARMPATH_INVALID_PIN: {
    status: 400,
    type: 'invalid_request_error',
    message: '`pin` has an id that no document of this request has.',
    remedy: 'Use ids of documents in the same request.',
  },
  WARMPATH_CONTEXT_TOO_LONG: {
    status: 400,
    type: 'invalid_request_error',
    message: "The prompt and the requested tokens do not fit the model's context.",
    remedy:
      'Send fewer documents, request fewer tokens, or give the embedded engine more context (`--context-tokens`).',
    openAICode: 'context_length_exceeded',
  },
  WARMPATH_ANSWER_UNFIT: {
    status: 422,
    type: 'invalid_request_error',
    message: 'The answer does not fit its JSON schema in something that the engine checks at the end.',
    remedy: 'Send the request again with another seed, or say in the prompt what the schema asks for.',
    openAICode: 'json_validate_failed',
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
    message: 'The engine only supports chat completions, which have no equivalent for a part of this request.',
    remedy: 'Omit the field that `param` names, or use an engine that supports this API.',
  },
  WARMPATH_INVALID_VECTOR: {
    status: 400,
    type: 'invalid_request_error',
    message: 'A vector is not valid.',
    remedy: 'Send vectors of finite numbers with the dimension of the collection, not all of them zeros.',
  },
  WARMPATH_EMBEDDING_INVALID: {
    status: 502,
    type: 'upstream_error',
    message: 'The embedding endpoint did not return the requested vectors.',
    remedy:
      'Check the URL and the model of the endpoint. A collection is searched with the model that it was built with.',
  },
  WARMPATH_RETRIEVAL_UNREACHABLE: {
    status: 502,
    type: 'upstream_error',
    message: 'A server that retrieval uses cannot be reached.',
    remedy: "Check that the server runs at the URL in the message or in the gateway's log.",
  },
  WARMPATH_RETRIEVAL_TIMEOUT: {
    status: 504,
    type: 'upstream_error',
    message: 'A server that retrieval uses did not answer in time.',
    remedy: 'Check the load of that server, and the network to it.',
  },
  WARMPATH_RETRIEVAL_ERROR: {
    status: 502,
    type: 'upstream_error',
    message: 'A server that retrieval uses returned an error.',
    remedy: 'See the message and the log of that server.',
  },
  WARMPATH_OVERLOADED: {
    status: 429,
    type: 'server_error',
    message: 'The server is overloaded.',
    remedy:
      'Try again after the seconds in Retry-After. The operator can raise the limit that the message names, or `queue.capacity`.',
  },
  WARMPATH_PLAN_LIMIT: {
    status: 422,
    type: 'invalid_request_error',
    message: 'Planning this batch takes too much time or memory.',
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
    message: 'The shared store is not reachable.',
    remedy: 'Check it with `warmpath check-config --connect`, then try again.',
  },
  WARMPATH_STATE_FOLDER: {
    status: 503,
    type: 'server_error',
    message: 'A file in the state folder cannot be read or written.',
    remedy:
      'Let the user of the gateway read and write the folder `$WARMPATH_DATA_DIR/state`, and see that its disk has room.',
  },
  WARMPATH_COLLECTION_NOT_FOUND: {
    status: 404,
    type: 'not_found_error',
    message: 'There is no collection with that name.',
    remedy: 'See `warmpath collections list` or GET /v1/collections. `warmpath ingest` creates one.',
  },
  WARMPATH_COLLECTION_STORED: {
    status: 409,
    type: 'invalid_request_error',
    message: 'This collection is in a vector database. Warmpath only searches it.',
    remedy: 'Add and list documents with the tools of the database.',
  },
  WARMPATH_COLLECTION_NAME: {
    status: 400,
    type: 'invalid_request_error',
    message: 'The name of the collection is not valid.',
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
    message: 'The vectors of this collection come from another model than the configured one.',
    remedy:
      'Configure that model, or create a new collection: `warmpath collections export` and `import` copy the documents.',
  },
  WARMPATH_COLLECTION_VECTORS: {
    status: 500,
    type: 'server_error',
    message: 'The vectors of this collection cannot be searched. Search by words still works.',
    remedy:
      'Ask for fewer dimensions (`collections.embeddings.dimensions`), divide the documents among collections, or keep them in a vector database (`collections.stores`).',
  },
  WARMPATH_COLLECTION_UNREADABLE: {
    status: 500,
    type: 'server_error',
    message: 'The files of a collection cannot be read.',
    remedy:
      'Check the permissions, and that the disk is not full. Otherwise restore the folder of the collection from a backup, or delete it and ingest again.',
  },
  WARMPATH_COLLECTION_UNWRITABLE: {
    status: 500,
    type: 'server_error',
    message: 'The files of a collection cannot be written.',
    remedy: 'Free disk space, or check the permissions. Then repeat the command: what was written is kept.',
  },
  WARMPATH_UNREADABLE_FILE: {
    status: 422,
    type: 'invalid_request_error',
    message: 'A file or document cannot be read as text.',
    remedy: 'Correct or omit the file or document that the message names.',
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
    remedy: 'The answer is incomplete. Send the request again.',
  },
  WARMPATH_UPSTREAM_ERROR: {
    status: 502,
    type: 'upstream_error',
    message: 'The engine returned an error.',
    remedy: 'See the message and the log of the engine.',
  },
  WARMPATH_LOOP: {
    status: 508,
    type: 'configuration_error',
    message: 'The request came back to this gateway: the URL of its engine leads to a gateway.',
    remedy: 'Set `upstream.url` (or `--engine`) to the address of the engine, not of a gateway.',
  },
  WARMPATH_GATEWAY_UNREACHABLE: {
    status: 502,
    type: 'upstream_error',
    message: 'The gateway cannot be reached.',
    remedy: 'Check that `warmpath serve` or `warmpath up` runs at that address.',
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
    message: 'The native llama.cpp library has the wrong version.',
    remedy: 'Install the exact version that the message names.',
  },
  WARMPATH_MODEL_FILE: {
    status: 500,
    type: 'configuration_error',
    message: 'The model file is not a loadable GGUF file.',
    remedy: 'Check the path. Download the file again if it is incomplete.',
  },
  WARMPATH_MODEL_UNSUPPORTED: {
    status: 500,
    type: 'configuration_error',
    message: 'The model is of a kind that llama.cpp cannot run.',
    remedy: 'Take another model. Where memory is short, take a smaller file of this one, or fewer tokens of context.',
  },
  WARMPATH_MODEL_SPEC: {
    status: 500,
    type: 'configuration_error',
    message: 'The name of the model is not valid.',
    remedy: 'Use a path or URL of a .gguf file, hf:org/repo:Q4_K_M, hf:org/repo/file.gguf, or demo.',
  },
  WARMPATH_DOWNLOAD_FAILED: {
    status: 500,
    type: 'configuration_error',
    message: 'The model could not be downloaded.',
    remedy: 'Check the name and the network. The next try resumes the download.',
  },
  WARMPATH_ENGINE_FAILED: {
    status: 500,
    type: 'server_error',
    message: 'The engine failed during computation.',
    remedy: "Send the request again. If it happens twice, report it with the engine's log.",
  },
  WARMPATH_PORT_IN_USE: {
    status: 500,
    type: 'configuration_error',
    message: 'Another program uses the port.',
    remedy: 'Choose another one with --port (0 picks a free one), or stop that program.',
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
    remedy: "Start it alone with `warmpath engine` to see why. If it happens twice, report it with the engine's log.",
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

/** A problem that was corrected instead of refused; same codes and paths as errors. */
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
  /** What exactly was wrong. Default: the message of the table. */
  readonly detail?: string;
  /** Whole seconds after which a retry may succeed (`Retry-After`). */
  readonly retryAfterS?: number;
  readonly cause?: unknown;
}

/** All errors that Warmpath throws on purpose. Recognise one with `WarmpathError.isInstance`, then read `code`. */
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

  /** Unlike `instanceof`, works across several copies of this package. */
  static isInstance(error: unknown): error is WarmpathError {
    return typeof error === 'object' && error !== null && (error as Record<symbol, unknown>)[MARKER] === true;
  }

  /**
   * The error body for OpenAI clients: `{error: {message, type, param, code, remedy}}`. The message ends with the
   * remedy, because SDKs only show the message.
   */
  toOpenAI(): { error: { message: string; type: string; param: string | null; code: string; remedy: string } } {
    const { type, path: param = null, remedy } = this;
    const { openAICode: code = this.code }: ErrorEntry = ERROR_TABLE[this.code];
    return { error: { message: withRemedy(this.message, remedy), type, param, code, remedy } };
  }
}

function withRemedy(message: string, remedy: string): string {
  if (message.endsWith(remedy)) return message;
  return `${message}${/[.!?]$/.test(message) ? '' : '.'} ${remedy}`;
}

/** Describes why a file cannot be read or written, from the error of the operating system. */
export function fileErrorReason(error: unknown): string {
  const { code } = error as { readonly code?: unknown };
  if (typeof code !== 'string') return 'the system gives no reason';
  return FILE_ERRORS[code] ?? code;
}

const FILE_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file or folder',
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EISDIR: 'it is a folder',
  ENOTDIR: 'a part of its path is not a folder',
  ENOSPC: 'the disk is full',
  EROFS: 'the file system is read-only',
  EMFILE: 'too many files are open',
  ELOOP: 'its symbolic links form a loop',
  ERR_FS_FILE_TOO_LARGE: 'it is larger than 2 GiB',
};
