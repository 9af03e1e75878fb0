import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Arranger } from '@warmpath/client';
import { z } from 'zod';
import { arrangedOutput, defined, switchesInput, toolResult } from './arrange-tool.js';
import type { Corpus } from './corpus.js';

/** Documents of one search. */
const DEFAULT_K = 5;
const MAX_K = 50;

/** Registers `search`: the documents that the server was started with, found by BM25 and arranged. */
export function registerSearch(server: McpServer, arranger: Arranger, corpus: Corpus): void {
  server.registerTool(
    'search',
    {
      title: 'Search documents',
      description: `Searches ${corpus.size} documents by their words (BM25) and answers with the best, in an order whose beginning the LLM engine has already computed.`,
      inputSchema: {
        query: z.string().min(1).describe('What to look for, in words that the documents would use.'),
        k: z.number().int().min(1).max(MAX_K).default(DEFAULT_K).describe('How many documents at most.'),
        ...switchesInput,
      },
      outputSchema: arrangedOutput,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    async ({ query, k, ...asked }, { signal }) => {
      const found = corpus.search(query, k);
      const documents = found.map(({ id, title, content }) => ({ id, ...(title !== undefined && { title }), content }));
      if (documents.length > 0) return toolResult(await arranger.arrange({ documents, ...defined(asked) }, { signal }));
      return {
        content: [{ type: 'text', text: 'No document has these words.' }],
        structuredContent: { documents: [], hint: null, predictedCachedTokens: 0, warnings: [] },
      };
    },
  );
}
