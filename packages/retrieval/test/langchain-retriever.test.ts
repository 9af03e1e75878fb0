import { Document } from '@langchain/core/documents';
import { BaseRetriever } from '@langchain/core/retrievers';
import { Bm25Retriever } from '../src/index.js';
import { fromLangChain } from '../src/stores/function-retriever.js';
import { allStages, type CaseDocument, runStagedRetrieverCases } from './staged-retriever.cases.js';

/** A retriever as applications of LangChain.js write them, over documents in memory. */
class MemoryRetriever extends BaseRetriever {
  lc_namespace = ['warmpath', 'test'];
  readonly #search: Bm25Retriever;

  constructor(documents: readonly CaseDocument[]) {
    super();
    this.#search = Bm25Retriever.over(documents);
  }

  override async _getRelevantDocuments(query: string): Promise<Document[]> {
    const stages = await allStages(this.#search, query, 1000);
    return stages
      .at(-1)!
      .candidates.map(
        ({ id, content, metadata }) => new Document({ id, pageContent: content, metadata: { ...metadata } }),
      );
  }
}

runStagedRetrieverCases('a retriever of LangChain.js', (documents) => {
  const retriever = fromLangChain(new MemoryRetriever(documents));
  const byId = new Map(documents.map((document) => [document.id, document]));
  return {
    retriever: {
      async *search(query, options) {
        for await (const stage of retriever.search(query, options)) {
          // Its documents have no title.
          const candidates = stage.candidates.map((found) => {
            const { title } = byId.get(found.id)!;
            return title === undefined ? found : { ...found, title };
          });
          yield { ...stage, candidates };
        }
      },
    },
  };
});
