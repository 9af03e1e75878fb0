import { WarmpathError, type Warning } from '@warmpath/core';
import { isBlank, isRecord, readRawDocument, TEXT_PLACES } from '@warmpath/core/internal';
import type {
  Collection,
  Collections,
  CutDocument,
  DocumentFile,
  DocumentText,
  FileDocument,
  Stage,
} from '@warmpath/retrieval';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { clientError, errorShapeOf } from '../apis/prompt-apis.js';
import { collectionTenant, type OpenCollections } from '../collections/open-collections.js';
import type { GatewayConfig } from '../config/schema.js';
import { type DocumentLimits, documentLimits } from '../config/schema-server.js';
import { FORM_TYPE, formParts } from '../intake/form-parts.js';
import { RESPONSE_HEADERS } from '../intake/headers.js';
import { DOCUMENT_FORMATS, DOCUMENT_ID_MAX_LENGTH, readFields, search as searchFields } from '../intake/own-fields.js';
import { bodyOf, charsetOf, JSON_LINES, JSON_TYPE, mediaTypeOf } from '../intake/request-body.js';
import { invalid, readLines, readObject } from '../json/json-body.js';

/** Documents of one page of a list. */
const PAGE = 100;
/** Results of one search. */
const RESULTS = 10;
/** Fields of a form beside its files. */
const FORM_FIELDS = ['id', 'title'];

type Named = { Params: { name: string } };
type NamedFile = Named & { Querystring: { id?: unknown; title?: unknown } };

export interface CollectionsParts {
  readonly config: Pick<GatewayConfig, 'server' | 'limits'>;
  readonly collections: OpenCollections;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

/**
 * Collections over HTTP: list, search, put documents in, list and remove them. A caller sees those of its own tenant.
 * `/v1/models` lists the models that answer from a collection.
 */
export function collectionsRoutes(app: FastifyInstance, { config, collections, now }: CollectionsParts): void {
  const tenantOf = ({ report }: FastifyRequest) => {
    report.bodyAt = now();
    return collectionTenant(config, report.caller);
  };

  app.get('/v1/collections', async (request, reply) => {
    const tenant = tenantOf(request);
    const data = [];
    const unreadable: Warning[] = [];
    for (const name of await collections.retrieval.names(tenant)) {
      const operation = { tenant, name, kind: 'list' } as const;
      try {
        data.push({ object: 'collection', id: name, ...(await collections.retrieval.get(tenant, name)).totals });
        collections.logWarnings(request, operation);
      } catch (error) {
        // One that cannot be read keeps no other back; one that was just deleted is none.
        if (!WarmpathError.isInstance(error)) throw error;
        if (error.code === 'WARMPATH_COLLECTION_NOT_FOUND') continue;
        const warning = { code: error.code, path: name, message: error.message };
        collections.logWarnings(request, operation, [warning]);
        unreadable.push(warning);
      }
    }
    for (const name of collections.retrieval.storedNames(tenant)) {
      data.push({ object: 'collection', id: name, store: collections.settings.stores[name]!.kind });
    }
    return reply.send({ object: 'list', data, ...collections.clientWarnings(request, unreadable) });
  });

  app.delete<Named>('/v1/collections/:name', async (request, reply) => {
    const { name } = request.params;
    await collections.retrieval.delete(tenantOf(request), name);
    return reply.send({ object: 'collection', id: name, deleted: true });
  });

  app.post<Named>('/v1/collections/:name/search', async (request, reply) => {
    const { name } = request.params;
    const tenant = tenantOf(request);
    await collections.searchable(tenant, name);
    const { query: text, k = RESULTS, ...asked } = readFields(searchFields, readObject(bodyOf(request)), '');
    const isStreamed = request.headers.accept?.includes('text/event-stream') === true;
    const search = (signal: AbortSignal) =>
      collections.search(request, { tenant, name, query: { text }, k, ...asked, signal });
    return searched(request, reply, { collections, name, search, isStreamed });
  });

  app.get<Named & { Querystring: { after?: unknown } }>('/v1/collections/:name/documents', async (request, reply) => {
    const collection = await collections.retrieval.get(tenantOf(request), request.params.name);
    const { after } = request.query;
    const data = [];
    let hasMore = false;
    for (const { id, title, metadata, bytes, passages } of collection.documents(stringOrNothing(after, 'after'))) {
      hasMore = data.length === PAGE;
      if (hasMore) break;
      data.push({ object: 'document', id, title, metadata, bytes, passages: passages.length });
    }
    return reply.send({ object: 'list', data, has_more: hasMore });
  });

  const mediaTypes = new Set([JSON_TYPE, JSON_LINES, FORM_TYPE, ...collections.retrieval.mediaTypes]);
  const options = { config: { mediaTypes } };
  app.post<NamedFile>('/v1/collections/:name/documents', options, async (request, reply) => {
    const place = { tenant: tenantOf(request), name: request.params.name };
    const limits = documentLimits(config.server);
    const signal = untilClosed(reply);
    const files = givenFiles(request, collections.retrieval, limits);
    let given: { readonly documents: readonly CutDocument[]; readonly warnings: readonly Warning[] };
    if (files === undefined) {
      const { texts, warnings } = readDocuments(givenDocuments(request), limits);
      given = { documents: await collections.retrieval.cutTexts(place, texts, signal), warnings };
    } else {
      given = await readFiles(files, (bytes, file) =>
        collections.retrieval.readFile(place, bytes, file, { signal, longest: limits.documentLength }),
      );
    }
    const put = (collection: Collection) => {
      signal.throwIfAborted();
      return collection.putCut(given.documents);
    };
    const bytes = given.documents.reduce((sum, document) => sum + document.bytes, 0);
    return reply.send(await ingested(request, collections, { place, bytes, put, warnings: given.warnings }));
  });

  // Ids stand in the query: many clients send no body with DELETE.
  app.delete<Named & { Querystring: { id?: unknown } }>('/v1/collections/:name/documents', async (request, reply) => {
    const tenant = tenantOf(request);
    const ids = [request.query.id].flat();
    if (!ids.every((id) => typeof id === 'string')) throw invalid('id', 'one id or more were expected');
    const collection = await collections.retrieval.get(tenant, request.params.name);
    const { removed } = await collection.remove(ids);
    return reply.send({ object: 'ingestion', collection: collection.name, removed });
  });
}

/** Aborted when the client leaves, or has left. */
function untilClosed({ raw }: FastifyReply): AbortSignal {
  const abort = new AbortController();
  const leave = () => abort.abort(new WarmpathError('WARMPATH_CLIENT_CLOSED'));
  if (raw.destroyed) leave();
  else raw.once('close', leave);
  return abort.signal;
}

/** Puts into a collection what has so many bytes of text, and says what became of it. */
async function ingested(
  request: FastifyRequest,
  collections: OpenCollections,
  given: {
    readonly place: { readonly tenant: string; readonly name: string };
    readonly bytes: number;
    readonly put: (collection: Collection) => ReturnType<Collection['put']>;
    /** Of documents that were left out, and of parts that could not be read. */
    readonly warnings: readonly Warning[];
  },
): Promise<object> {
  const { place, bytes, put, warnings } = given;
  const collection = await collections.getOrMake(place.tenant, place.name);
  const { maxBytes } = collections;
  if (collection.totals.bytes + bytes > maxBytes) {
    const detail = `A collection holds at most ${maxBytes} bytes of text.`;
    throw new WarmpathError('WARMPATH_BODY_TOO_LARGE', { detail });
  }
  const { added, changed, unchanged, embedding } = await put(collection);
  const warned = embedding?.warning && [embedding.warning];
  if (embedding !== undefined) collections.logWarnings(request, { ...place, kind: 'write' }, warned);
  const isKept = added + changed + unchanged === 0;
  const kept = { code: 'WARMPATH_UNREADABLE_FILE', path: 'id', message: KEPT } as const;
  return {
    object: 'ingestion',
    collection: place.name,
    added,
    changed,
    unchanged,
    ...(embedding && { embedded: embedding.embedded }),
    ...collections.clientWarnings(request, warned, isKept ? [...warnings, kept] : warnings),
  };
}

/** Why nothing was taken in. */
const KEPT =
  'The document stays as it was, for it was read whole before. Repair the file, or remove the document first.';

/** Reads files, one after the other. Of several, those without text are left out, with a warning. */
async function readFiles(
  files: readonly GivenFile[],
  read: (bytes: Buffer, file: DocumentFile) => Promise<FileDocument>,
): Promise<{ readonly documents: CutDocument[]; readonly warnings: Warning[] }> {
  const documents: CutDocument[] = [];
  const warnings: Warning[] = [];
  for (const { bytes, ...file } of files) {
    const path = files.length === 1 ? undefined : `file ${file.id}`;
    try {
      const { document, unread } = await read(bytes, file);
      documents.push(document);
      for (const { position, message } of unread) {
        const place = path === undefined ? position : `${path}, ${position}`;
        warnings.push({ code: 'WARMPATH_UNREADABLE_FILE', path: place, message });
      }
    } catch (error) {
      if (path === undefined || !WarmpathError.isInstance(error)) throw error;
      const { code, message: detail, path: place } = error;
      if (code !== 'WARMPATH_EMPTY_DOCUMENT') throw new WarmpathError(code, { path, detail, cause: error });
      warnings.push({ code, path: place ?? path, message: 'It has no text. It was left out.' });
    }
  }
  if (documents.length === 0) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path: warnings[0]!.path });
  return { documents, warnings };
}

/** JSON with the last stage, or each stage as an event as it comes. */
async function searched(
  request: FastifyRequest,
  reply: FastifyReply,
  asked: {
    readonly collections: OpenCollections;
    readonly name: string;
    readonly search: (signal: AbortSignal) => AsyncIterable<Stage>;
    readonly isStreamed: boolean;
  },
): Promise<FastifyReply> {
  const { collections, name, search, isStreamed } = asked;
  const { report } = request;
  const stages = search(untilClosed(reply))[Symbol.asyncIterator]();
  // What is wrong with the question is answered with a status.
  let stage = await stages.next();
  if (!isStreamed) {
    let last = stage;
    for (; !stage.done; stage = await stages.next()) last = stage;
    const { candidates: results = [], warnings } = last.value ?? {};
    return reply.send({
      object: 'search',
      collection: name,
      results,
      ...collections.clientWarnings(request, warnings),
    });
  }
  reply.hijack();
  reply.raw.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    [RESPONSE_HEADERS.requestId]: report.requestId,
  });
  try {
    for (; !stage.done; stage = await stages.next()) {
      const { index, final, candidates: results, warnings } = stage.value;
      const event = { object: 'search.stage', index, final, results, ...collections.clientWarnings(request, warnings) };
      reply.raw.write(`data: ${JSON.stringify(event)}\n\n`);
    }
    reply.raw.end('data: [DONE]\n\n');
  } catch (error) {
    const failure = WarmpathError.isInstance(error) ? error : new WarmpathError('WARMPATH_INTERNAL', { cause: error });
    report.failed(failure.code, 'gateway');
    reply.raw.end(errorShapeOf('/v1/collections').event(clientError(failure)));
  }
  return reply;
}

type GivenFile = DocumentFile & { readonly bytes: Buffer };

/**
 * The files of a body: one whole file, whose id and title stand in the query, or those of a form, whose ids are their
 * names. Undefined for documents as JSON.
 */
function givenFiles(
  request: FastifyRequest<NamedFile>,
  retrieval: Collections,
  limits: DocumentLimits,
): GivenFile[] | undefined {
  const { 'content-type': contentType = '' } = request.headers;
  const type = mediaTypeOf(request.headers);
  if (type === JSON_TYPE || type === JSON_LINES) return undefined;
  const body = request.body as Buffer | undefined;
  const given = { id: request.query.id, title: stringOrNothing(request.query.title, 'title') };
  if (type !== FORM_TYPE) {
    return [fileOf({ ...given, type: contentType, bytes: body ?? Buffer.alloc(0) }, retrieval)];
  }
  const parts = formParts(body ?? Buffer.alloc(0), contentType, limits.documents + FORM_FIELDS.length);
  const fields: Record<string, unknown> = { ...given };
  for (const { name, bytes } of parts.filter(({ fileName }) => fileName === undefined)) {
    if (!FORM_FIELDS.includes(name)) refuseUnknown({ [name]: bytes }, FORM_FIELDS);
    fields[name] = bytes.toString('utf8');
  }
  // A form whose field for a file was left empty sends a file without a name.
  const files = parts.filter(({ fileName }) => fileName !== undefined && fileName !== '');
  if (files.length === 0) throw invalid('body', 'a form with a file or more was expected');
  if (files.length > limits.documents) throw new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path: 'body' });
  const ofOne = files.length === 1 ? fields : {};
  if (files.length > 1 && (fields['id'] ?? fields['title']) !== undefined) {
    throw invalid('id', 'a form with several files names them by their file names, without `id` and `title`');
  }
  const read = files.map(({ fileName, type, bytes }) =>
    fileOf({ id: ofOne['id'] ?? fileName, title: ofOne['title'], fileName, type, bytes }, retrieval),
  );
  const twice = read.find(({ id }, at) => read.findIndex((file) => file.id === id) !== at);
  if (twice !== undefined) throw invalid(`file ${twice.id}`, 'the form has two files of this name');
  return read;
}

/** A file with what it is read as. @throws WARMPATH_MEDIA_TYPE, WARMPATH_INVALID_REQUEST for its id. */
function fileOf(
  given: {
    readonly id: unknown;
    readonly title: unknown;
    readonly fileName?: string | undefined;
    readonly type: string;
    readonly bytes: Buffer;
  },
  retrieval: Collections,
): GivenFile {
  const { id, title, fileName, type, bytes } = given;
  const mediaType = mediaTypeOf({ 'content-type': type });
  if (typeof id !== 'string' || id === '' || id.length > DOCUMENT_ID_MAX_LENGTH) {
    const expected = `one id of 1 to ${DOCUMENT_ID_MAX_LENGTH} characters was expected in the query (\`?id=…\`)`;
    throw invalid(
      'id',
      `a body of ${mediaType} is one document: ${expected}. JSON needs content-type: application/json`,
    );
  }
  const format = retrieval.formatOf(mediaType, fileName ?? '');
  if (format === undefined) {
    const detail = `A file of type ${mediaType.slice(0, 100) || 'unknown'} is not read here. Types that are: ${retrieval.mediaTypes.join(', ')}.`;
    throw new WarmpathError('WARMPATH_MEDIA_TYPE', { path: `file ${id}`, detail });
  }
  const charset = charsetOf(type);
  return {
    id,
    format,
    bytes,
    ...(typeof title === 'string' && title !== '' && { title }),
    ...(charset !== undefined && { charset }),
  };
}

/** A document as it came, and where it stands. */
interface GivenDocument {
  readonly path: string;
  readonly document: unknown;
}

/** The documents of a body: `{"documents": […]}`, or each a line of its own. */
function givenDocuments(request: FastifyRequest): GivenDocument[] {
  if (mediaTypeOf(request.headers) === JSON_LINES) {
    return readLines(bodyOf(request)).map(({ line, object }) => ({ path: `line ${line}`, document: object }));
  }
  const { documents, ...rest } = readObject(bodyOf(request));
  refuseUnknown(rest, ['documents']);
  if (!Array.isArray(documents)) throw invalid('documents', 'an array of documents was expected');
  return documents.map((document: unknown, place) => ({ path: `documents[${place}]`, document }));
}

/**
 * Checks the documents of a body. Those without text are left out, with a warning.
 *
 * @throws WarmpathError with the path of the document that is wrong, or where no document has a text.
 */
function readDocuments(
  given: readonly GivenDocument[],
  limits: DocumentLimits,
): { readonly texts: DocumentText[]; readonly warnings: Warning[] } {
  if (given.length === 0) throw invalid('documents', 'an array of documents was expected');
  if (given.length > limits.documents) throw new WarmpathError('WARMPATH_TOO_MANY_DOCUMENTS', { path: 'documents' });
  const texts: DocumentText[] = [];
  const warnings: Warning[] = [];
  for (const { path, document } of given) {
    const text = readDocument(document, path, limits);
    if (typeof text !== 'string') texts.push(text);
    else warnings.push({ code: 'WARMPATH_EMPTY_DOCUMENT', path: text, message: 'It has no text. It was left out.' });
  }
  if (texts.length === 0) throw new WarmpathError('WARMPATH_EMPTY_DOCUMENT', { path: warnings[0]!.path });
  return { texts, warnings };
}

/** @returns the document, or the path of its text where it has none. */
function readDocument(document: unknown, path: string, limits: DocumentLimits): DocumentText | string {
  const wrong = (at: string, detail: string) =>
    new WarmpathError('WARMPATH_INVALID_DOCUMENT', { path: `${path}${at}`, detail });
  const raw = typeof document === 'string' ? undefined : readRawDocument(document);
  if (raw === undefined) throw wrong('', 'An object was expected.');
  const { id, title, metadata } = raw;
  const content = raw.content.value;
  if (typeof id.value !== 'string' || id.value === '' || id.value.length > DOCUMENT_ID_MAX_LENGTH) {
    throw wrong(id.path, `A string of 1 to ${DOCUMENT_ID_MAX_LENGTH} characters was expected.`);
  }
  if (typeof content !== 'string' && content !== null)
    throw wrong(raw.content.path, `A text ${TEXT_PLACES} was expected.`);
  if (content === null || isBlank(content)) return `${path}${raw.content.path}`;
  if (content.length > limits.documentLength) {
    throw new WarmpathError('WARMPATH_DOCUMENT_TOO_LARGE', { path: `${path}${raw.content.path}` });
  }
  if (title.value != null && typeof title.value !== 'string') throw wrong(title.path, 'A string was expected.');
  if (metadata.value != null && !isRecord(metadata.value)) throw wrong(metadata.path, 'An object was expected.');
  const { format } = document as { readonly format?: unknown };
  const known = DOCUMENT_FORMATS.find((name) => name === format);
  if (format != null && known === undefined)
    throw wrong('.format', `One of ${DOCUMENT_FORMATS.join(', ')} was expected.`);
  return {
    id: id.value,
    content,
    ...(title.value != null && { title: title.value }),
    ...(metadata.value != null && { metadata: metadata.value }),
    ...(known !== undefined && { format: known }),
  };
}

function refuseUnknown(rest: object, known: readonly string[], before = ''): void {
  const [key] = Object.keys(rest);
  if (key !== undefined) throw invalid(`${before}${key}`, `unknown field; known ones are ${known.join(', ')}`);
}

function stringOrNothing(value: unknown, path: string): string | undefined {
  if (value === undefined || typeof value === 'string') return value;
  throw invalid(path, 'one string was expected');
}
