import type { CallbackManagerForRetrieverRun } from '@langchain/core/callbacks/manager';
import { Document } from '@langchain/core/documents';
import { BaseRetriever } from '@langchain/core/retrievers';

export const passage = (id: string) =>
  new Document({
    id,
    pageContent: `${id} was found in a year of many rains. `.repeat(8),
    metadata: { source: `${id}.md` },
  });

/** Finds the documents that the query names, letter by letter. */
export class LetterRetriever extends BaseRetriever {
  lc_namespace = ['warmpath', 'test'];

  override async _getRelevantDocuments(query: string, _run?: CallbackManagerForRetrieverRun): Promise<Document[]> {
    return [...query].map(passage);
  }
}

/** The labels in the order in which they stand in a prompt. */
export const labelsIn = (text: string) => [...text.matchAll(/<document id="(\w+)"/g)].map((match) => match[1]).join('');
