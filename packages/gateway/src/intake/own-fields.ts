import { POLICY_NAMES, type WarmpathError } from '@warmpath/core';
import { TEXT_PLACES } from '@warmpath/core/internal';
import { z } from 'zod';
import { invalid } from '../json/json-body.js';

// The gateway's own fields of requests: the checks of requests, the OpenAPI document and the reference page come from
// these schemas. Documents of a prompt and batches to plan are read as bytes; here are the names of their fields.

/** Characters of a conversation's name. */
export const SESSION_MAX_LENGTH = 256;
/** Characters of the id of a document in a collection. */
export const DOCUMENT_ID_MAX_LENGTH = 512;
/** Passages that one prompt gets from a collection. */
const MAX_PASSAGES = 100;
/** Results of one search. */
const MAX_RESULTS = 1_000;
/** No search has more stages. */
const MAX_STAGES = 32;

export const DOCUMENT_FORMATS = ['text', 'markdown', 'html'] as const;
export const ILL_FORMED = 'well-formed Unicode was expected, in UTF-8 and without half of a surrogate pair';

const flag = () => z.boolean({ error: 'true or false was expected' });
const text = () => z.string({ error: 'a string was expected' });
const oneOf = <const Name extends string>(names: readonly Name[]) =>
  z.enum(names, { error: `one of ${names.join(', ')} was expected` });
const whole = (min: number, max: number) => {
  const error = `a whole number from ${min} to ${max} was expected`;
  return z.int({ error }).min(min, { error }).max(max, { error });
};

/** A number of something. */
export const count = z.int({ error: 'a whole number of 0 or more was expected' }).min(0, {
  error: 'a whole number of 0 or more was expected',
});
/** A text that is not empty. */
export const name = text().min(1, { error: 'a string that is not empty was expected' });

const LENGTH = `a name of 1 to ${SESSION_MAX_LENGTH} characters was expected`;
const sessionName = text()
  .min(1, { error: LENGTH })
  .max(SESSION_MAX_LENGTH, { error: LENGTH })
  .refine((value) => value.isWellFormed(), { error: ILL_FORMED });

const documentId = (maxLength?: number) => {
  const named = maxLength === undefined ? name : text().min(1).max(maxLength);
  return z.union([named, z.number()]);
};
/** How a document's text is described. */
const TEXT_DESCRIPTION = `The text. It may stand ${TEXT_PLACES}.`;

const document = z
  .looseObject({
    id: documentId().optional().meta({ description: 'Stable id. Without one, a hash of the content.' }),
    title: text().optional().meta({ description: 'Title, written into the prompt.' }),
    content: text().optional().meta({ description: TEXT_DESCRIPTION }),
    metadata: z.looseObject({}).optional().meta({ description: 'Never written into the prompt.' }),
  })
  .meta({ description: 'One retrieved passage.' });

export const documents = z.array(z.union([text(), document])).meta({
  description: 'Retrieved documents, the most relevant first: texts, or objects.',
});

/** How documents are ordered. Core checks the values: its errors have codes of their own. */
const ordering = {
  policy: oneOf(POLICY_NAMES).nullish().meta({ description: 'Ordering policy.' }),
  maxShift: count.nullish().meta({ description: 'Places that a document may move from its retrieval rank.' }),
  shiftPrice: z.number().min(0).max(1_000_000_000).nullish().meta({
    description: 'Tokens that each place costs. A document moves only where that saves more.',
  }),
  pin: z.array(name).nullish().meta({ description: 'Ids of documents that keep their place.' }),
  hints: flag().nullish().meta({ description: 'Whether the prompt states the retrieval order when it changed.' }),
};

/** Names of the fields that say how documents are ordered. */
const ORDERING_FIELDS = Object.keys(ordering) as readonly (keyof typeof ordering)[];

/** The object `warmpath` of a request. */
export const switches = z
  .strictObject({
    session: sessionName.nullish().meta({ description: "The conversation's name." }),
    forgotten: oneOf(['mark', 'refuse']).nullish().meta({
      description:
        'What happens where earlier turns are not known: 409 (`refuse`, the default), or an answer (`mark`).',
    }),
    deduplicate: flag().nullish().meta({
      description:
        '`false`: send again what the conversation still shows. `true`: also refer to documents and results of tools that stand in the prompt twice.',
    }),
    blocks: flag().nullish().meta({ description: '`true`: also refer to repeated parts of documents.' }),
    ...ordering,
    bypass: flag().nullish().meta({ description: '`true`: forward the request without arranging anything.' }),
    labels: oneOf(['kept', 'mapped']).nullish().meta({
      description:
        'Labels such as `[2]` of documents in the prompt. `kept` (default): a label moves with its document. `mapped`: each document has a label of its own in the prompt, and the answer has those of the request.',
    }),
  })
  .meta({ description: 'How this request is arranged. The configuration decides what is left out.' });

const stages = whole(1, MAX_STAGES).optional().meta({
  description: 'The search ends with its n-th stage, if it has as many. Stage 1 searches by words alone.',
});

const MAX_FIELDS = 16;
const MAX_VALUES = 100;
const MAX_EXPAND = 10;

const bound = z.union([z.number(), text()], { error: 'a number or a string was expected' }).optional();
const value = z.union([text(), z.number(), z.boolean()]);
const condition = z.strictObject({
  in: z.array(value).min(1).max(MAX_VALUES).optional(),
  gt: bound,
  gte: bound,
  lt: bound,
  lte: bound,
  prefix: text().optional(),
});

/** What a search may be narrowed by. */
const narrowing = {
  where: z
    .record(name, z.union([value, condition], { error: 'a value, or one or more of in, gt, gte, lt, lte, prefix' }))
    .refine((fields) => Object.keys(fields).length <= MAX_FIELDS, { error: `at most ${MAX_FIELDS} fields` })
    .optional()
    .meta({
      description:
        'Only passages with such metadata: `{"lang": "de", "year": {"gte": 2020}, "source": {"prefix": "docs/"}}`.',
    }),
  minScore: z.number({ error: 'a number was expected' }).optional().meta({
    description: 'Passages of a lower score are left out.',
  }),
  expand: whole(0, MAX_EXPAND).optional().meta({
    description: 'Passages before and behind each one that come along.',
  }),
};

/** `warmpath.retrieval`. */
export const retrieval = z
  .strictObject({
    collection: text().optional().meta({ description: 'Where to look. Default: the collection of the model.' }),
    k: whole(1, MAX_PASSAGES).optional().meta({ description: 'How many passages.' }),
    query: text().optional().meta({ description: 'What to look for. Default: the last message of the user.' }),
    stages,
    ...narrowing,
  })
  .meta({ description: 'Retrieves documents for this request, where collections are configured.' });

/** `POST /v1/collections/{name}/search`. */
export const search = z.strictObject({ query: text(), k: whole(1, MAX_RESULTS).optional(), stages, ...narrowing });

/** A document that is put into a collection. */
export const newDocument = z.looseObject({
  id: documentId(DOCUMENT_ID_MAX_LENGTH).meta({
    description: 'Required. BEIR and LlamaIndex have it under `_id`, `id_`.',
  }),
  title: text().optional(),
  content: text().meta({ description: TEXT_DESCRIPTION }),
  metadata: z.looseObject({}).optional().meta({ description: 'Comes back with each passage that is found.' }),
  format: oneOf(DOCUMENT_FORMATS).optional().meta({ description: 'Default: plain text.' }),
});

/** `POST /v1/arrange`. */
export const arrangeRequest = z.strictObject({
  documents,
  ...ordering,
  preamble: text().nullish().meta({ description: 'The text that your prompt has before the documents.' }),
  model: text().nullish().meta({ description: 'Keeps the histories of several models apart.' }),
  engine: text().nullish().meta({
    description: 'Which of several engines your prompt goes to. The gateway chooses if left out.',
  }),
});

/** `POST /v1/observe`. */
export const observation = z.strictObject({
  id: text().meta({ description: 'From the answer of `POST /v1/arrange`.' }),
  outcome: oneOf(['completed', 'failed']),
  promptTokens: count.nullish().meta({ description: "The engine's count." }),
  cachedTokens: count.nullish().meta({ description: "The engine's count." }),
});

/** `POST /v1/prompts/{id}`. */
export const consentRequest = z.strictObject({
  state: oneOf(['allowed', 'refused', 'asking']).meta({
    description:
      '`allowed`: documents of this kind may move, from the next request on. `refused`: they never do. `asking`: forgets the earlier choice.',
  }),
  labels: oneOf(['kept', 'mapped']).optional().meta({
    description:
      '`mapped`: documents get stable labels in the prompt, and labels in the answer are mapped back. Default: `mapped` where the labels count positions, otherwise `kept`.',
  }),
});

/** More prompts than fit. */
const MAX_CAPTURED = 1_000;

/** `POST /v1/capture`. */
export const captureRequest = z.strictObject({
  requests: z.int({ error: 'a whole number was expected' }).min(0).max(MAX_CAPTURED).meta({
    description: 'How many of the next prompts. Bodies that were captured before are forgotten. 0: none.',
  }),
});

const plannedDocument = z.union([name, z.strictObject({ id: name, tokens: count.optional() })]);
const plannedContext = z.array(plannedDocument);

/** `POST /v1/plan`. */
export const planRequest = z.strictObject({
  contexts: z.array(z.union([plannedContext, z.strictObject({ documents: plannedContext })])),
  capacity: count.optional().meta({ description: "Tokens that the engine's prefix cache holds." }),
});

/** The same fields with values of any type where core checks them. */
export function uncheckedOrdering<Shape extends z.ZodRawShape>(schema: z.ZodObject<Shape>) {
  const unknown = Object.fromEntries(ORDERING_FIELDS.map((field) => [field, z.unknown().optional()]));
  return schema.extend(unknown as Record<keyof typeof ordering, z.ZodOptional<z.ZodUnknown>>);
}

/**
 * Checks an object of the gateway's own fields.
 *
 * @param path Where it stands in the body; empty for the body itself.
 * @throws WarmpathError `WARMPATH_INVALID_REQUEST` with the path of the first wrong field; an unknown one goes first.
 */
export function readFields<Schema extends z.ZodObject>(schema: Schema, value: unknown, path: string): z.output<Schema> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { issues } = result.error;
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0]!;
  if (issue.code === 'unrecognized_keys') {
    const known = issue.path.length === 0 ? `; known ones are ${Object.keys(schema.shape).join(', ')}` : '';
    throw wrong([path, ...issue.path, issue.keys[0]!], `unknown field${known}`);
  }
  throw wrong([path, ...issue.path], issue.path.length === 0 ? 'an object was expected' : issue.message);
}

/** @throws WarmpathError as `readFields` does. */
export function readSessionName(value: string, path: string): string {
  const result = sessionName.safeParse(value);
  if (result.success) return result.data;
  throw wrong([path], result.error.issues[0]!.message);
}

function wrong(path: readonly PropertyKey[], detail: string): WarmpathError {
  return invalid(path.filter((part) => part !== '').join('.'), detail);
}
