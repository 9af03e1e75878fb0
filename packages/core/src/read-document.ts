/** Names of a document's text, in order of preference. */
const TEXT_NAMES = ['content', 'text', 'pageContent', 'page_content', 'snippet'] as const;
/** Names of a document's id, in order of preference. */
const ID_NAMES = ['id', '_id', 'id_'] as const;
export const DOCUMENT_ID_FIELDS: ReadonlySet<string> = new Set(ID_NAMES);
/** Fields that hold the document itself (Cohere, LlamaIndex, rerankers). Read where no text stands beside them. */
export const NESTED_DOCUMENT_FIELDS: ReadonlySet<string> = new Set(['data', 'node', 'document']);
/** All fields of a document that are read, apart from nested ones. */
export const DOCUMENT_FIELDS: ReadonlySet<string> = new Set([
  ...ID_NAMES,
  ...TEXT_NAMES,
  'title',
  'metadata',
  'tokens',
]);

const quoted = (names: Iterable<string>) => [...names].map((name) => `\`${name}\``);
const listed = (names: readonly string[]) => `${names.slice(0, -1).join(', ')} or ${names.at(-1)!}`;

/** Where the text of a document may stand, for descriptions and error messages. */
export const TEXT_PLACES = `under ${listed(quoted(TEXT_NAMES))}, or in an object under ${listed(
  quoted(NESTED_DOCUMENT_FIELDS),
)}`;

/** A value of a document, unchecked. */
export interface RawField {
  readonly value: unknown;
  /** Path below the document, for errors: `.node.text`. Empty for a document that is a string. */
  readonly path: string;
}

/** The fields of a document under Warmpath's names. `null` or `undefined` where absent. */
export interface RawDocument {
  /** A numeric id is a string here. */
  readonly id: RawField;
  readonly title: RawField;
  /** `null` where a field for the text is there and holds none; `undefined` where there is no such field. */
  readonly content: RawField;
  readonly metadata: RawField;
  readonly tokens: RawField;
}

/**
 * Reads a document in the forms of common libraries: a string; `content`, `text`, LangChain's `pageContent` or
 * `page_content`, Cohere's `{id, data}`, LlamaIndex's `{node}`, a reranker's `{document}`. Checks nothing.
 *
 * @returns `undefined` for what is neither a string nor an object
 */
export function readRawDocument(input: unknown): RawDocument | undefined {
  if (typeof input === 'string') return { ...readFields({}, ''), content: { value: input, path: '' } };
  if (!isRecord(input)) return undefined;
  const outer = readFields(input, '');
  if (hasText(outer.content)) return outer;
  const nested = [...NESTED_DOCUMENT_FIELDS]
    .map((name) => readNested(input[name], `.${name}`))
    .filter((fields) => fields !== undefined);
  const inner =
    nested.find(({ content }) => hasText(content)) ??
    (outer.content.value === undefined ? nested.find(({ content }) => content.value !== undefined) : undefined);
  if (inner === undefined) return outer;
  const prefer = (field: keyof RawDocument) => (outer[field].value == null ? inner[field] : outer[field]);
  return {
    id: prefer('id'),
    title: prefer('title'),
    content: inner.content,
    metadata: prefer('metadata'),
    tokens: prefer('tokens'),
  };
}

/** Whether a text has nothing but white space. */
export function isBlank(text: string): boolean {
  return !/\S/.test(text);
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readNested(value: unknown, path: string): RawDocument | undefined {
  if (typeof value === 'string') return { ...readFields({}, path), content: { value, path } };
  return isRecord(value) ? readFields(value, path) : undefined;
}

function readFields(input: Readonly<Record<string, unknown>>, before: string): RawDocument {
  const field = (name: string): RawField => ({ value: input[name], path: `${before}.${name}` });
  const id = ID_NAMES.map(field).find(({ value }) => value != null) ?? field('id');
  return {
    id: isNumeric(id.value) ? { ...id, value: String(id.value) } : id,
    title: field('title'),
    content: readText(TEXT_NAMES.filter((name) => name in input).map(field)) ?? {
      value: undefined,
      path: `${before}.content`,
    },
    metadata: field('metadata'),
    tokens: field('tokens'),
  };
}

/** The first field with a text; else the first with a value; else `null` where there is any field. */
function readText(fields: readonly RawField[]): RawField | undefined {
  const [first] = fields;
  return (
    fields.find(hasText) ?? fields.find(({ value }) => value != null) ?? (first && { value: null, path: first.path })
  );
}

function isNumeric(value: unknown): value is number | bigint {
  return typeof value === 'bigint' || Number.isFinite(value);
}

function hasText({ value }: RawField): boolean {
  return value != null && !(typeof value === 'string' && isBlank(value));
}
