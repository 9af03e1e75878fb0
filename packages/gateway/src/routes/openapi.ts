import { SESSION_BREAK_CAUSES } from '@warmpath/core/internal';
import { z } from 'zod';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import {
  arrangeRequest,
  captureRequest,
  consentRequest,
  count,
  DOCUMENT_ID_MAX_LENGTH,
  documents,
  name,
  newDocument,
  observation,
  planRequest,
  retrieval,
  search,
  switches,
} from '../intake/own-fields.js';
import { JSON_LINES } from '../intake/request-body.js';
import { NO_GAIN_REASONS, type NoGainReason } from '../shapes/shapes.js';
import { CLIENT_PATHS } from './passthrough.js';

// The HTTP interface as data, for the reference page and for generated clients. Requests are checked with the same
// schemas (`own-fields.ts`); `openapi.test.ts` checks answers against the ones that stand here.

const prompt = (fields: Record<string, z.ZodType>) =>
  z.looseObject({ ...fields, documents: documents.optional(), warmpath: switches.optional() });

const message = z.looseObject({ role: z.string() });

const chatRequest = z.looseObject({
  messages: z.array(message),
  documents: documents.optional(),
  warmpath: switches.extend({ retrieval: retrieval.optional() }).optional(),
});

const collection = z.union([
  z.strictObject({
    object: z.literal('collection'),
    id: name,
    documents: count,
    passages: count,
    duplicates: count,
    tokens: count,
    bytes: count,
  }),
  z.strictObject({
    object: z.literal('collection'),
    id: name,
    store: z.string().meta({ description: 'The kind of the server that has it (`collections.stores`).' }),
  }),
]);

const passage = z.strictObject({
  id: name.meta({ description: '`document#hash`: the same as long as the document has the passage.' }),
  title: z.string().optional().meta({ description: 'The headings above it.' }),
  content: z.string(),
  metadata: z.looseObject({ source: name }),
  score: z.number(),
});

const warnings = z
  .array(z.strictObject({ code: name, path: name, message: z.string() }))
  .optional()
  .meta({
    description:
      'What there was to go without: an embedding endpoint that failed, for instance, a page of a PDF, or in a list a collection that cannot be read.',
  });

const collectionPath = '/v1/collections/{name}';

const arrangement = z.strictObject({
  object: z.literal('arrangement'),
  engine: z.string().optional().meta({ description: 'Which of several engines the order is for.' }),
  id: z.string().meta({ description: 'For `POST /v1/observe`.' }),
  documents: z.array(
    z.strictObject({
      id: name,
      label: z.string(),
      title: z.string().optional(),
      tokens: count,
      rank: count,
      source: count.meta({ description: 'Its position in your list.' }),
    }),
  ),
  order: z.array(count).meta({ description: '`order[place]` is the retrieval rank of the document at that place.' }),
  hint: z.nullable(z.strictObject({ labels: z.array(z.string()), text: z.string() })),
  text: z.string().meta({ description: 'Documents and hint as text for a prompt.' }),
  predictedCachedTokens: count,
  trace: z.looseObject({}).meta({ description: 'Why the order is what it is.' }),
});

const plan = z.looseObject({
  steps: z.array(
    z.strictObject({
      index: count.meta({ description: 'Which context, from 0.' }),
      documents: z.array(name).meta({ description: 'Ids in prompt order.' }),
      sharedDocuments: count.meta({ description: 'Documents at the start that earlier steps leave in the cache.' }),
    }),
  ),
});

const sessionBreak = {
  cause: z.enum(Object.keys(SESSION_BREAK_CAUSES) as [string, ...string[]]),
  remedy: z.string(),
  isAvoidable: z.boolean().meta({ description: 'Whether the gateway can avoid it.' }),
  piece: z.nullable(z.string()).meta({ description: 'Where the prompt parts from the earlier one.' }),
  offset: count.meta({ description: 'UTF-16 units of the piece before the difference, within 64 units.' }),
  lostTokens: count,
  cost: z.nullable(z.number()).meta({ description: '`null` without `prices`.' }),
};

const session = z.strictObject({
  object: z.literal('session'),
  id: name.meta({ description: 'A digest of tenant, end user, header and name.' }),
  tenant: z.string(),
  client: z.string().meta({ description: 'Whose headers named it; `warmpath`: a name of the gateway.' }),
  startedBy: z.nullable(z.string()).meta({ description: 'The session of the agent that started this one.' }),
  model: z.string(),
  idleMs: z.number(),
  sums: z.strictObject({
    prompts: count,
    promptTokens: count,
    cachedTokens: count,
    cacheWriteTokens: count,
    computedTokens: count,
    cost: z.nullable(z.number()),
    breaks: count,
    lostTokens: count,
    lostCost: z.nullable(z.number()),
  }),
  breaks: z.array(z.strictObject({ ...sessionBreak, requestId: z.string(), agoMs: z.number() })),
});

const requestRecord = z.strictObject({
  object: z.literal('request'),
  id: z.string(),
  route: z.string(),
  status: count,
  error: z.nullable(z.string()).meta({ description: 'A code of the error table.' }),
  durationMs: z.number().meta({ description: 'From its headers to the end of its answer.' }),
  receivedMs: z.number().meta({ description: 'Of these, until its body was complete.' }),
  overheadMs: z.nullable(z.number()),
  engine: z
    .nullable(
      z.strictObject({
        name: z.string(),
        candidates: count,
        newTokens: z.number(),
        pendingTokens: z.number(),
        tried: count,
      }),
    )
    .meta({ description: 'Which of several engines got it, and what was weighed, in estimated tokens.' }),
  queuedMs: z.nullable(z.number()),
  retrieval: z
    .nullable(
      z.strictObject({
        ms: z.number().meta({ description: 'Until the last stage of the search.' }),
        stages: count,
        passages: count,
        speculation: z.nullable(z.enum(['confirmed', 'wrong'])).meta({
          description: 'Whether generation that started before the search was over was the right one.',
        }),
        aheadMs: z.number().meta({ description: 'How long before the end of the search that one began.' }),
      }),
    )
    .meta({ description: 'How passages were looked for, where `warmpath.retrieval` asked for them.' }),
  ttftMs: z.nullable(z.number()),
  promptTokens: z.nullable(count),
  cachedTokens: z.nullable(count),
  predictedCachedTokens: z.nullable(count),
  baselineTokens: z.nullable(count).meta({
    description: 'What the engine would have had cached of the prompt as the client wrote it.',
  }),
  gainTokens: z.nullable(z.int()).meta({
    description: 'Cached tokens without those. 0 for a prompt that went out as the client wrote it.',
  }),
  cacheWriteTokens: z.nullable(count).meta({ description: 'Written into the cache, for a price of their own.' }),
  cost: z.nullable(z.number()).meta({ description: 'What the prompt cost. `null` without `prices`.' }),
  baselineCost: z.nullable(z.number()).meta({ description: 'What it would have cost without the gateway.' }),
  model: z.nullable(z.string()).meta({ description: 'The model that it names.' }),
  isHeldOut: z.boolean().meta({ description: 'Whether it is of the group that is left as it is (`holdout`).' }),
  noGain: z
    .nullable(z.enum(Object.keys(NO_GAIN_REASONS) as [NoGainReason, ...NoGainReason[]]))
    .meta({ description: 'Why nothing was gained.' }),
  documents: z.nullable(count).meta({ description: 'That it brought, or that stood in its prompt.' }),
  blocks: z.array(z.looseObject({})).meta({ description: 'Each group of documents, and what was decided about it.' }),
  references: count,
  shortened: count,
  deduplicatedTokens: count,
  failedOpen: z.array(z.strictObject({ fallback: z.string(), reason: z.string() })),
  session: z.nullable(z.string()).meta({ description: 'The conversation that it names: see `GET /v1/sessions`.' }),
  sessionBreak: z
    .nullable(z.strictObject(sessionBreak))
    .meta({ description: 'What its session had in the cache, and this prompt computed again.' }),
  prefix: z.nullable(z.looseObject({})).meta({ description: 'Only with `explain.prompts: all`.' }),
});

const expectedGain = z.nullable(z.strictObject({ tokens: z.int(), share: z.number() }));

const promptKind = z.strictObject({
  object: z.literal('prompt_kind'),
  id: name,
  tenant: z.string(),
  role: z.enum(['system', 'user', 'tool', 'assistant']),
  parts: z
    .array(
      z.union([
        z.strictObject({ kind: z.literal('text'), text: z.string() }),
        z.strictObject({ kind: z.enum(['documents', 'changing']) }),
      ]),
    )
    .meta({ description: "The program's text, and the places of the documents and of other text that changes." }),
  prompts: count,
  withDocuments: count.meta({ description: 'Prompts with two documents or more that can be told apart.' }),
  notices: z
    .array(z.strictObject({ name, preventsGain: z.boolean(), message: z.string() }))
    .meta({ description: 'Why the kind gains nothing (`preventsGain`), and what a person must look at.' }),
  state: z.enum(['asking', 'allowed', 'automatic', 'refused']),
  labels: z.enum(['kept', 'mapped']),
  gain: expectedGain.meta({
    description: 'Tokens, and share of the prompts, that would be cached more. `null`: not known yet.',
  }),
  gainIfMapped: expectedGain.meta({ description: 'The same with `labels: mapped`.' }),
});

const tenantQuery = {
  tenant: z.string().optional().meta({ description: 'For the operator: one tenant. Default: all.' }),
};

const error = z.strictObject({
  error: z.strictObject({
    message: z.string(),
    type: z.string(),
    param: z.nullable(z.string()).meta({ description: 'Path into the request.' }),
    code: z.string().meta({ description: 'A code of the error table.' }),
    remedy: z.string(),
  }),
});

const captureState = z.strictObject({
  object: z.literal('capture'),
  remaining: count.meta({ description: 'Prompts that are still to be captured.' }),
  captured: z.array(z.strictObject({ id: z.string(), bytes: count })),
  tooLarge: count.meta({ description: 'Bodies that did not fit into the memory for them.' }),
});

/** One operation of the HTTP interface. */
interface Operation {
  readonly summary: string;
  readonly body?: z.ZodType;
  /** What each line of a body of JSON lines is, where it may come so. */
  readonly line?: z.ZodType;
  /** Whether the body may be a whole file. */
  readonly takesFiles?: boolean;
  /** What may stand in the query. */
  readonly query?: Readonly<Record<string, z.ZodType>>;
  readonly parameters?: readonly string[];
  /** Schema of the answer by status; `undefined` where the engine decides, or where it is no JSON. */
  readonly answers: Readonly<Record<number, z.ZodType | undefined>>;
  /** The engine's answer is passed on. */
  readonly isRelayed?: true;
}

const relayed = (summary: string, body: z.ZodType): Operation => {
  return { summary, body, answers: { 200: undefined }, isRelayed: true };
};

/** Every route, by path and method. */
export const OPERATIONS: Readonly<Record<string, Readonly<Record<string, Operation>>>> = {
  '/v1/chat/completions': {
    post: relayed("OpenAI's chat completions, with documents, or with retrieval of them.", chatRequest),
  },
  '/v1/completions': {
    post: relayed(
      "OpenAI's completions. With documents, `prompt` must be one string.",
      prompt({ prompt: z.union([z.string(), z.array(z.unknown())]) }),
    ),
  },
  '/v1/messages': {
    post: relayed("Anthropic's Messages.", prompt({ messages: z.array(message), max_tokens: count })),
  },
  '/v1/messages/count_tokens': {
    post: {
      summary: "The engine's own count of a Messages request, or an estimate.",
      body: prompt({ messages: z.array(message) }),
      answers: { 200: z.looseObject({ input_tokens: count }) },
    },
  },
  '/v1/responses': {
    post: relayed("OpenAI's Responses.", prompt({ input: z.union([z.string(), z.array(z.unknown())]) })),
  },
  '/v1/models': {
    get: {
      summary: 'The models of all engines, each once, and those that answer from a collection (`collections.models`).',
      answers: { 200: undefined },
      isRelayed: true,
    },
  },
  '/v1/arrange': {
    post: {
      summary: 'Orders documents for a client that builds its own prompt. Counts as served.',
      body: arrangeRequest,
      answers: { 200: arrangement },
    },
  },
  '/v1/observe': {
    post: {
      summary: 'Says what became of a prompt whose order came from `/v1/arrange`.',
      body: observation,
      answers: {
        200: z.strictObject({ object: z.literal('observation'), state: z.enum(['observed', 'forgotten']) }),
      },
    },
  },
  '/v1/plan': {
    post: {
      summary: 'Orders a whole batch: documents within each request, and the requests themselves.',
      body: planRequest,
      answers: { 200: plan },
    },
  },
  '/v1/warmup': {
    post: {
      summary: 'Prefills what will stand before the documents, while the search still runs.',
      body: z.looseObject({ messages: z.array(message) }),
      answers: { 202: z.strictObject({ state: z.enum(['warming', 'warm']) }) },
    },
  },
  '/v1/requests/{id}': {
    get: {
      summary: 'Counts and times of a request just served, by its `x-request-id`.',
      parameters: ['id'],
      answers: { 200: requestRecord },
    },
  },
  '/v1/prompts': {
    get: {
      summary: "The prompt kinds that were learned from the caller's prompts; for the operator, those of all tenants.",
      query: tenantQuery,
      answers: {
        200: z.strictObject({
          object: z.literal('list'),
          data: z.array(promptKind),
          mayChange: z.boolean().meta({ description: 'Whether the caller may allow and refuse kinds.' }),
          survivesRestart: z.boolean().meta({ description: 'Whether consents are stored outside of the process.' }),
        }),
      },
    },
  },
  '/v1/prompts/{id}': {
    post: {
      summary: 'Allows or refuses a prompt kind. For the operator.',
      body: consentRequest,
      query: tenantQuery,
      parameters: ['id'],
      answers: { 200: promptKind },
    },
  },
  '/v1/capture': {
    get: { summary: 'Which bodies of prompts were captured. For the operator.', answers: { 200: captureState } },
    post: {
      summary: 'Keeps the bodies of the next prompts in memory, to be looked at. For the operator.',
      body: captureRequest,
      answers: { 200: captureState },
    },
  },
  '/v1/capture/{id}': {
    get: {
      summary: 'The body of a captured request, by its `x-request-id`. For the operator.',
      parameters: ['id'],
      answers: {
        200: z.strictObject({
          object: z.literal('captured_request'),
          id: z.string(),
          path: z.string(),
          body: z.string(),
        }),
      },
    },
  },
  '/v1/sessions': {
    get: {
      summary: "Accounts of the sessions of the caller's tenant; for the operator, of all tenants or of `tenant`.",
      query: tenantQuery,
      answers: { 200: z.strictObject({ object: z.literal('list'), data: z.array(session) }) },
    },
  },
  '/v1/sessions/{name}': {
    delete: {
      summary: "Forgets one of the conversations of the caller's own tenant and end user.",
      parameters: ['name'],
      answers: { 200: z.strictObject({ object: z.literal('session'), session: z.string(), forgotten: count }) },
    },
  },
  '/v1/collections': {
    get: {
      summary: "The caller's collections. Where `collections.folder` is configured, as all of `/v1/collections`.",
      answers: {
        200: z.strictObject({
          object: z.literal('list'),
          data: z.array(collection),
          warnings,
        }),
      },
    },
  },
  [collectionPath]: {
    delete: {
      summary: 'Deletes a collection and everything in it.',
      parameters: ['name'],
      answers: { 200: z.strictObject({ object: z.literal('collection'), id: name, deleted: z.literal(true) }) },
    },
  },
  [`${collectionPath}/search`]: {
    post: {
      summary:
        'Looks for passages. With `accept: text/event-stream`, each stage of the search is an event (`index`, `final`, `results`, `warnings`).',
      body: search,
      parameters: ['name'],
      answers: {
        200: z.strictObject({ object: z.literal('search'), collection: name, results: z.array(passage), warnings }),
      },
    },
  },
  [`${collectionPath}/documents`]: {
    get: {
      summary: 'Documents in the order in which they came in, a hundred at a time; `?after=` names the last one seen.',
      parameters: ['name'],
      answers: {
        200: z.strictObject({
          object: z.literal('list'),
          data: z.array(
            z.strictObject({
              object: z.literal('document'),
              id: name,
              title: z.string().optional(),
              metadata: z.looseObject({}).optional(),
              bytes: count,
              passages: count,
            }),
          ),
          has_more: z.boolean(),
        }),
      },
    },
    post: {
      summary:
        'Puts documents in, in the place of those of the same ids; makes the collection where there is none. With `content-type: application/x-ndjson`, each line is a document. With `multipart/form-data`, each file is a document with the id of its name. With the type of a file, the body is that file, whose id stands in the query: `?id=handbook.pdf`.',
      body: z.strictObject({ documents: z.array(newDocument) }),
      line: newDocument,
      takesFiles: true,
      query: {
        id: z
          .string()
          .min(1)
          .max(DOCUMENT_ID_MAX_LENGTH)
          .optional()
          .meta({ description: 'Of a whole file, the id. Required there.' }),
        title: z.string().optional().meta({ description: 'Of a whole file, the title; that of its text if left out.' }),
      },
      parameters: ['name'],
      answers: {
        200: z.strictObject({
          object: z.literal('ingestion'),
          collection: name,
          added: count,
          changed: count,
          unchanged: count,
          embedded: count.optional().meta({
            description: 'Passages that got vectors, where `collections.embeddings` is configured.',
          }),
          warnings,
        }),
      },
    },
    delete: {
      summary: 'Takes documents out: `?id=…`, as often as there are documents.',
      parameters: ['name'],
      answers: { 200: z.strictObject({ object: z.literal('ingestion'), collection: name, removed: count }) },
    },
  },
  '/healthz': {
    get: { summary: 'The process answers.', answers: { 200: z.strictObject({ status: z.literal('ok') }) } },
  },
  '/readyz': {
    get: {
      summary: 'The gateway takes requests and its engine, or one of several, answers.',
      answers: {
        200: z.strictObject({
          status: z.literal('ready'),
          sessionStore: z.enum(['up', 'down']),
          engines: z
            .array(z.strictObject({ name: z.string(), state: z.enum(['ready', 'draining', 'ejected', 'failing']) }))
            .optional()
            .meta({ description: 'Only where there are several.' }),
        }),
        503: error,
      },
    },
  },
  '/metrics': { get: { summary: 'Prometheus text.', answers: { 200: undefined } } },
};

/** An OpenAPI 3.1 document, as far as this project writes one. */
export interface OpenApiDocument {
  readonly openapi: '3.1.0';
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly paths: Readonly<Record<string, Readonly<Record<string, object>>>>;
}

/** The HTTP interface as an OpenAPI 3.1 document. `version` is the package's, `fileTypes` those of whole files. */
export function openApiDocument(version: string, fileTypes: readonly string[] = []): OpenApiDocument {
  const paths = Object.entries(OPERATIONS).map(([path, methods]) => {
    const operations = Object.entries(methods).map(([method, operation]) => [
      method,
      describe(path, operation, fileTypes),
    ]);
    return [path, Object.fromEntries(operations)];
  });
  const description = `Every other path below \`/v1/\` is passed on to the engine untouched, in both directions, and so are ${CLIENT_PATHS.join(', ')}. The dashboard is at \`/ui\`.`;
  return {
    openapi: '3.1.0',
    info: { title: 'Warmpath gateway', version, description },
    paths: Object.fromEntries(paths),
  };
}

function describe(path: string, operation: Operation, fileTypes: readonly string[]): object {
  const { summary, body, line, takesFiles = false, parameters = [], query = {}, answers, isRelayed } = operation;
  const responses = Object.entries(answers).map(([status, schema]) => {
    const description = isRelayed === true ? "The engine's answer." : statusText(Number(status));
    return [status, { description, headers: HEADERS, ...(schema && { content: json(schema) }) }];
  });
  return {
    summary,
    ...((parameters.length > 0 || Object.keys(query).length > 0) && {
      parameters: [
        ...parameters.map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } })),
        ...Object.entries(query).map(([name, schema]) => ({ name, in: 'query', schema: schemaOf(schema) })),
      ],
    }),
    ...(body && {
      requestBody: {
        required: true,
        content: {
          ...json(body),
          ...(line && json(line, JSON_LINES)),
          ...(takesFiles && Object.assign({}, ...fileTypes.map(wholeFile))),
        },
      },
    }),
    responses: {
      ...Object.fromEntries(responses),
      ...(path.startsWith('/v1/') && { default: { description: 'An error.', headers: HEADERS, content: json(error) } }),
    },
  };
}

const HEADERS = {
  [RESPONSE_HEADERS.requestId]: { schema: { type: 'string' } },
};

function statusText(status: number): string {
  return status < 300 ? 'Done.' : 'Not ready.';
}

function json(schema: z.ZodType, type = 'application/json'): object {
  return { [type]: { schema: schemaOf(schema) } };
}

function wholeFile(type: string): object {
  return { [type]: { schema: { type: 'string', format: 'binary' } } };
}

function schemaOf(schema: z.ZodType): object {
  const { $schema, ...rest } = z.toJSONSchema(schema, { io: 'input', reused: 'inline' });
  return rest;
}
