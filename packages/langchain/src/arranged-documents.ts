import { Document, type DocumentInterface } from '@langchain/core/documents';
import type { Arranger, OrderSwitches } from '@warmpath/client';
import { arrangeOrKeep, type KeepOptions, type OpenContexts } from '@warmpath/client/internal';
import { renderDocument } from '@warmpath/core';

/** What an arranged document has under `metadata.warmpath`. */
export interface WarmpathMetadata {
  /** What the hint calls it. */
  readonly label: string;
  /** Retrieval rank, from 0. */
  readonly rank: number;
  /** Of the last document alone: the line that states the retrieval order, if the order changed. */
  readonly hint?: string;
}

export interface ArrangeOptions extends Pick<KeepOptions, 'onError'> {
  /** What the prompt has before the documents: prompts with different ones share nothing. */
  readonly preamble?: string;
  /** Model that the prompt is for, if several are in use. */
  readonly model?: string;
  /** How far documents may move. */
  readonly switches?: OrderSwitches;
  /** The stable id of a passage. Default: the document's `id`, and without one a hash of its text. */
  readonly idOf?: (document: DocumentInterface) => string | undefined;
}

/**
 * The documents in prompt order, each with its label and retrieval rank in `metadata.warmpath`. The same text under the
 * same id stands there once. If no order is to be had, they come back as they were.
 */
export async function arrangeDocuments(
  documents: readonly DocumentInterface[],
  arranger: Arranger,
  {
    open,
    idOf = ({ id }) => id,
    preamble,
    model,
    switches,
    onError,
  }: ArrangeOptions & { readonly open?: OpenContexts },
): Promise<DocumentInterface[]> {
  if (documents.length === 0) return [];
  const inputs = documents.map((document) => {
    const { title } = document.metadata as { readonly title?: unknown };
    const id = idOf(document);
    return {
      ...(id !== undefined && { id }),
      ...(typeof title === 'string' && { title }),
      content: document.pageContent,
    };
  });
  const request = {
    ...switches,
    documents: inputs,
    ...(preamble !== undefined && { preamble }),
    ...(model !== undefined && { model }),
  };
  const context = await arrangeOrKeep(arranger, request, { onError });
  if (context === undefined) return [...documents];
  const last = context.documents.length - 1;
  const arranged = context.documents.map(({ source, label, rank }, place) => {
    const hint = place === last ? context.hint?.text : undefined;
    const warmpath: WarmpathMetadata = { label, rank, ...(hint !== undefined && { hint }) };
    const document = documents[source]!;
    return new Document({ ...document, metadata: { ...document.metadata, warmpath } });
  });
  open?.add(
    context,
    arranged.map(({ pageContent }) => pageContent.trimEnd()),
    preamble,
  );
  return arranged;
}

/**
 * Documents and hint as text for a prompt, byte-stable: a document is written the same wherever it stands. The marks
 * around them tell a gateway that these documents may move. O(length).
 */
export function formatDocuments(documents: readonly DocumentInterface[]): string {
  if (documents.length === 0) return '';
  let text = '<warmpath-documents>\n';
  let hints = '';
  for (const { pageContent, metadata, id } of documents) {
    const { title, warmpath } = metadata as { readonly title?: unknown; readonly warmpath?: WarmpathMetadata };
    const label = warmpath?.label ?? id ?? 'document';
    text += renderDocument(
      { label, title: typeof title === 'string' ? title : undefined, content: pageContent },
      'xml',
    );
    hints += warmpath?.hint ?? '';
  }
  return `${text}</warmpath-documents>\n${hints}`;
}
