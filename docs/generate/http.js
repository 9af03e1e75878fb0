import { readFileSync } from 'node:fs';
import { openApiDocument } from '@warmpath/gateway';
import { code, page, table } from './markdown.js';

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const document = openApiDocument(version);

/** The OpenAPI document of the gateway's routes. */
export function openApiFile() {
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** Every route with the fields of its request and of its answer. */
export function httpPage() {
  const sections = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(`${method.toUpperCase()} ${path}`, operation)),
  );
  return page(
    'HTTP',
    `The gateway's own routes, also as [openapi.json](/openapi.json){target="_self"}. ${document.info.description} What every answer has beside its body: [headers](./headers.md) and [errors](./errors.md).`,
    sections,
  );
}

function section(title, { summary, parameters = [], requestBody, responses }) {
  const parts = [`## ${title}`, summary];
  const query = parameters.filter(({ in: place }) => place === 'query');
  if (query.length > 0) {
    const rows = query.map(({ name, schema }) => [code(name), typeOf(schema), schema.description]);
    parts.push('Query:', table(['name', 'type', 'meaning'], rows));
  }
  if (requestBody !== undefined) parts.push('Request:', fields(requestBody.content['application/json'].schema));
  for (const [status, { content }] of Object.entries(responses)) {
    if (content !== undefined && status !== 'default') {
      parts.push(`Answer, status ${status}:`, fields(content['application/json'].schema));
    }
  }
  return parts.join('\n\n');
}

function fields(schema) {
  return table(['field', 'type', 'required', 'meaning'], [...rowsOf(schema, '')]);
}

function* rowsOf({ properties = {}, required = [], additionalProperties }, prefix) {
  for (const [name, schema] of Object.entries(properties)) {
    const path = `${prefix}${name}`;
    yield [code(path), typeOf(schema), required.includes(name) ? 'yes' : '', schema.description ?? ''];
    const inner = schema.items ?? schema.anyOf?.find(({ type }) => type === 'object') ?? schema;
    if (inner.properties) yield* rowsOf(inner, `${path}${schema.items ? '[]' : ''}.`);
  }
  if (additionalProperties !== false && prefix === '') yield ['any other field', '', '', 'Passed on as it is.'];
}

function typeOf({ type, const: value, enum: values, items, anyOf }) {
  if (value !== undefined) return code(JSON.stringify(value));
  if (values !== undefined) return values.map(code).join(' or ');
  if (anyOf !== undefined) return [...new Set(anyOf.map(typeOf))].join(' or ');
  return type === 'array' ? `array of ${typeOf(items)}` : (type ?? 'any');
}
