import type { Document } from '../document.js';
import type { TemplateName } from './prompt.js';

/** The fields of a document that a template writes. */
export type RenderedFields = Pick<Document, 'label' | 'title' | 'content'>;

/**
 * Writes one document. The result depends on label, title, content and template only, never on the position. Trailing
 * white space is removed, because it could merge with the separator; lone surrogates become U+FFFD; in `xml`, document
 * tags in the content are escaped. Metadata is not rendered. O(length).
 */
export function renderDocument(document: RenderedFields, template: TemplateName): string {
  const content = wellFormed(document.content).trimEnd();
  const title = document.title === undefined ? '' : singleLine(wellFormed(document.title));
  switch (template) {
    case 'xml': {
      const attribute = title === '' ? '' : ` title="${escapeAttribute(title)}"`;
      return `<document id="${escapeAttribute(document.label)}"${attribute}>\n${neutralise(content)}\n</document>\n`;
    }
    case 'brackets':
      return `[${document.label}]${title === '' ? '' : ` ${title}`}\n${content}\n\n`;
    case 'plain':
      return `## ${documentName(document, template)}\n${content}\n\n`;
  }
}

/** Documents one after the other, in the order given. */
export function renderDocuments(documents: readonly RenderedFields[], template: TemplateName): string {
  let text = '';
  for (const document of documents) text += renderDocument(document, template);
  return text;
}

/**
 * The name of a document in hints: its label, or in `plain` title and label, because chunks of one page share a title.
 */
export function documentName(document: Pick<Document, 'label' | 'title'>, template: TemplateName): string {
  if (template !== 'plain' || document.title === undefined) return document.label;
  const title = singleLine(wellFormed(document.title));
  return title === '' ? document.label : `${title} (${document.label})`;
}

const ATTRIBUTE_ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '"': '&quot;', '<': '&lt;', '>': '&gt;' };

function escapeAttribute(text: string): string {
  return text.replace(/[&"<>]/g, (character) => ATTRIBUTE_ESCAPES[character]!);
}

/** Escapes `<document` and `</document` in content. */
function neutralise(content: string): string {
  // A fast path: most passages have no `<`.
  if (!content.includes('<')) return content;
  // The slash and the white space behind it are one group, so that matching takes linear time.
  return content.replace(/<(?=\s*(?:\/\s*)?document\b)/gi, '&lt;');
}

function singleLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

/** Replaces lone surrogates. With the `u` flag, `\p{Surrogate}` matches only these. */
function wellFormed(text: string): string {
  return /[\ud800-\udfff]/.test(text) ? text.replace(/\p{Surrogate}/gu, '\ufffd') : text;
}
