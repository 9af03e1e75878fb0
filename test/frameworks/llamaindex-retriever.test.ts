import type { QueryBundle } from '@llamaindex/core/query-engine';
import { BaseRetriever } from '@llamaindex/core/retriever';
import { type NodeWithScore, TextNode } from '@llamaindex/core/schema';
import { Bm25Retriever } from '@warmpath/retrieval';
import { fromLlamaIndex } from '@warmpath/retrieval/function';
import {
  allStages,
  type CaseDocument,
  runStagedRetrieverCases,
} from '../../packages/retrieval/test/staged-retriever.cases.js';

/** A retriever as applications of LlamaIndex.TS write them, over documents in memory. */
class MemoryRetriever extends BaseRetriever {
  readonly #search: Bm25Retriever;

  constructor(documents: readonly CaseDocument[]) {
    super();
    this.#search = Bm25Retriever.over(documents);
  }

  override async _retrieve({ query }: QueryBundle): Promise<NodeWithScore[]> {
    const stages = await allStages(this.#search, String(query), 1000);
    return stages.at(-1)!.candidates.map(({ id, content, metadata, score }) => ({
      node: new TextNode({ id_: id, text: content, metadata: { ...metadata } }),
      score,
    }));
  }
}

runStagedRetrieverCases('a retriever of LlamaIndex.TS', (documents) => {
  const retriever = fromLlamaIndex(new MemoryRetriever(documents));
  const byId = new Map(documents.map((document) => [document.id, document]));
  return {
    retriever: {
      async *search(query, options) {
        for await (const stage of retriever.search(query, options)) {
          // Its nodes have no title.
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
