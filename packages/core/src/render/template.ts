import type { Document } from '../document.js';
import type { TemplateName } from './prompt.js';

/** What a template writes of a document. */
export type RenderedFields = Pick<Document, 'label' | 'title' | 'content'>;

/**
 * Writes one document. Byte-stable: the result depends on label, title, content and template alone, never on the
 * document's place, so it tokenises the same wherever it stands. Content loses trailing white space (the separator that
 * follows must not merge with it) and lone surrogates (which engines refuse) become U+FFFD; in `xml`, tags that would
 * end this document or open another are neutralised. Metadata is never rendered. Cost: O(length).
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
 * The name under which a document can be found in the prompt: its label, or in `plain` its title with the label behind
 * it, because several chunks of one page have one title.
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

/** Takes the edge off `<document` and `</document` inside content; everything else stays as it is. */
function neutralise(content: string): string {
  // Most passages have no `<` at all, and finding that out costs a tenth of the replacement.
  if (!content.includes('<')) return content;
  // The slash and what follows it stand in a group: two runs of white space side by side would take quadratic time.
  return content.replace(/<(?=\s*(?:\/\s*)?document\b)/gi, '&lt;');
}

function singleLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}

/** The `u` flag makes `\p{Surrogate}` match lone surrogates only; the first test spares ordinary text the slow path. */
function wellFormed(text: string): string {
  return /[\ud800-\udfff]/.test(text) ? text.replace(/\p{Surrogate}/gu, '\ufffd') : text;
}
