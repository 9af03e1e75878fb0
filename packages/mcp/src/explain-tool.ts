import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { blockDocuments, type PromptText, recognise } from '@warmpath/core';
import { z } from 'zod';

const message = z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() });

/** Registers `explain`: which documents a prompt has, as a gateway would recognise them, and whether they may move. */
export function registerExplain(server: McpServer): void {
  server.registerTool(
    'explain',
    {
      title: 'Explain a prompt',
      description:
        'Says which documents Warmpath recognises in the messages of a prompt, in which form, and whether they may change places.',
      inputSchema: { messages: z.array(message).min(1).describe('The messages of the prompt, in their order.') },
      outputSchema: {
        blocks: z.array(
          z.object({
            message: z.number(),
            format: z.string(),
            marked: z.boolean(),
            documents: z.array(z.object({ id: z.string(), tokens: z.number() })),
            labels: z.string(),
            fixed: z.string().nullable(),
          }),
        ),
      },
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    },
    ({ messages }) => {
      const texts: readonly PromptText[] = messages.map(({ role, content }) => ({ role, text: content }));
      const blocks = recognise(texts, { mode: 'conservative' }).map((block) => ({
        message: block.text,
        format: block.format,
        marked: block.marked,
        documents: blockDocuments(texts[block.text]!.text, block).map(({ id, tokens }) => ({ id, tokens })),
        labels: block.labels,
        fixed: block.fixed ?? null,
      }));
      return { content: [{ type: 'text', text: describe(blocks) }], structuredContent: { blocks } };
    },
  );
}

function describe(
  blocks: readonly {
    readonly message: number;
    readonly format: string;
    readonly documents: readonly { readonly id: string; readonly tokens: number }[];
    readonly fixed: string | null;
  }[],
): string {
  if (blocks.length === 0) return 'No documents recognised.';
  return blocks
    .map(({ message: at, format, documents, fixed }) => {
      const tokens = documents.reduce((sum, document) => sum + document.tokens, 0);
      const names = documents.map(({ id }) => id).join(', ');
      const may = fixed === null ? 'may change places' : 'stay: the prompt speaks of their order';
      return `messages[${at}]: ${documents.length} documents (${format}), ${tokens} tokens, ${may}: ${names}`;
    })
    .join('\n');
}
