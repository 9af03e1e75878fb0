import { readFileSync } from 'node:fs';
import { requestFields } from '@warmpath/engine';
import { openApiDocument } from '@warmpath/gateway';
import { MEDIA_TYPES } from '@warmpath/retrieval';
import { code, page, table } from './markdown.js';

/** Fields that make it worth writing an object of several routes once. */
const MIN_SHARED_FIELDS = 3;

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const document = openApiDocument(version, [...MEDIA_TYPES.keys(), 'multipart/form-data']);

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    title: `${method.toUpperCase()} ${code(path)}`,
    ...operation,
  })),
);

/** Objects that several routes have: `[name, schema]`. */
const shared = sharedObjects();

/** Fields whose description the page has already, each as name and schema. */
const described = new Set();

/** The OpenAPI document of the gateway's routes. */
export function openApiFile() {
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** Every route with the fields of its request and of its answer. */
export function httpPage() {
  described.clear();
  return page(
    'HTTP',
    `The gateway's own routes, also as [openapi.json](/openapi.json){target="_self"}. ${document.info.description} What every answer has beside its body: [headers](./headers.md) and [errors](./errors.md). A field with \`?\` may be left out. A field is explained where it comes first. \`…\` stands for other fields, which are passed on.`,
    [
      '## Objects of several routes',
      ...shared.map(([name, schema]) => block(`${name} = ${objectOf(schema, '', true)}`)),
      ...operations.map(section),
      '## Fields of the embedded engine',
      engineFields(),
    ],
  );
}

/** What the embedded engine does with the fields of chat and plain completions. */
function engineFields() {
  const { supported, ignored, refused } = requestFields();
  const list = (names) => names.map(code).join(', ');
  return table(
    ['fields', ''],
    [
      ['supported', list(supported)],
      ['without effect on the answer', list(ignored)],
      ['refused by name', list(refused)],
    ],
  );
}

function section({ title, summary, parameters = [], requestBody, responses }) {
  const parts = [`## ${title}`, summary];
  const query = parameters.filter(({ in: place }) => place === 'query');
  if (query.length > 0) {
    const properties = Object.fromEntries(query.map(({ name, schema }) => [name, schema]));
    parts.push('Query:', block(objectOf({ properties, additionalProperties: false }, '')));
  }
  if (requestBody !== undefined) parts.push('Request:', block(typeOf(schemaOf(requestBody), '')));
  for (const [status, response] of Object.entries(responses)) {
    if (response.content === undefined || status === 'default') continue;
    parts.push(`Answer, status ${status}:`, block(typeOf(schemaOf(response), '')));
  }
  return parts.join('\n\n');
}

function schemaOf({ content }) {
  return content['application/json'].schema;
}

function block(text) {
  return `\`\`\`ts\n${text}\n\`\`\``;
}

/** A schema in the notation of TypeScript, with its descriptions as comments. */
function typeOf(schema, indent) {
  const { type, const: value, enum: values, items, anyOf, properties = {} } = schema;
  if (value !== undefined) return JSON.stringify(value);
  if (values !== undefined) return values.map((text) => JSON.stringify(text)).join(' | ');
  if (anyOf !== undefined) return [...new Set(anyOf.map((one) => typeOf(one, indent)))].join(' | ');
  if (type === 'array') return arrayOf(typeOf(items, indent));
  if (Object.keys(properties).length > 0) return withSharedPart(schema, indent);
  return [type ?? 'any'].flat().join(' | ');
}

function arrayOf(type) {
  return /^[^{]*[|&] /.test(type) ? `(${type})[]` : `${type}[]`;
}

/** An object that has all fields of a shared one is that one, and the rest. */
function withSharedPart(schema, indent) {
  const part = shared.find(([, { properties }]) =>
    Object.entries(properties).every(([name, field]) => isEqual(schema.properties[name], field)),
  );
  if (part === undefined) return objectOf(schema, indent);
  const [name, { properties: known }] = part;
  const rest = Object.entries(schema.properties).filter(([field]) => !(field in known));
  if (rest.length === 0) return name;
  return `${name} & ${objectOf({ ...schema, properties: Object.fromEntries(rest) }, indent)}`;
}

function objectOf({ properties, required = [], additionalProperties }, indent, isShared = false) {
  const inner = `${indent}  `;
  const lines = Object.entries(properties).map(([name, schema]) => {
    const owner = isShared ? undefined : ownerOf(name, schema);
    const [first, ...rest] = (owner ?? typeOf(schema, inner)).split('\n');
    const comment = owner === undefined ? commentOf(name, schema) : '';
    return [`${inner}${name}${required.includes(name) ? '' : '?'}: ${first}${comment}`, ...rest].join('\n');
  });
  if (additionalProperties !== false) lines.push(`${inner}…`);
  return `{\n${lines.join('\n')}\n${indent}}`;
}

/** Its description, where the page does not have it yet. */
function commentOf(name, schema) {
  const key = JSON.stringify([name, schema]);
  if (schema.description === undefined || described.has(key)) return '';
  described.add(key);
  return ` // ${schema.description}`;
}

/** The shared object that describes a field of this name and schema. */
function ownerOf(name, schema) {
  if (schema.description === undefined) return undefined;
  const owner = shared.find(([, { properties }]) => isEqual(properties[name], schema));
  return owner && `${owner[0]}["${name}"]`;
}

function sharedObjects() {
  const found = new Map();
  for (const [name, schema] of operations.flatMap(objectsIn)) {
    const key = JSON.stringify(schema.properties);
    const isFirst = !found.has(key);
    if (isFirst) found.set(key, { name, schema, count: 0 });
    found.get(key).count += 1;
  }
  return [...found.values()]
    .filter(({ schema, count }) => count > 1 && Object.keys(schema.properties).length >= MIN_SHARED_FIELDS)
    .map(({ name, schema }) => [typeName(schema.properties.object?.const ?? name), schema]);
}

/** `prompt_kind` is `PromptKind`, and a field `notices` has objects that are a `Notice`. */
function typeName(name) {
  return name.replace(/(?:^|_)(\w)/g, (_, letter) => letter.toUpperCase()).replace(/s$/, '');
}

/** Every object of the request and the answers of a route, with the name of its field or of its kind. */
function objectsIn({ requestBody, responses }) {
  const bodies = [requestBody, ...Object.values(responses)].filter((part) => part?.content !== undefined);
  return bodies.flatMap((body) => {
    const schema = schemaOf(body);
    const name = schema.properties?.object?.const;
    return [...(name === undefined ? [] : [[name, schema]]), ...nestedObjects(schema)];
  });
}

function* nestedObjects({ properties = {} }) {
  for (const [name, schema] of Object.entries(properties)) {
    const value = schema.items ?? schema;
    const object = value.anyOf?.find(({ type }) => type === 'object') ?? value;
    if (Object.keys(object.properties ?? {}).length > 0) yield [name, object];
    yield* nestedObjects(object);
  }
}

function isEqual(one, other) {
  return one !== undefined && JSON.stringify(one) === JSON.stringify(other);
}
