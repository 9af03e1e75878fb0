import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { blockDocuments, type PromptText, recognise } from '@warmpath/core';
import {
  BREAK_CAUSES,
  findPrefixBreak,
  outlinePrompt,
  type PrefixBreak,
  type PromptPiece,
} from '@warmpath/core/internal';
import { z } from 'zod';

const message = z.object({ role: z.enum(['system', 'user', 'assistant', 'tool']), content: z.string() });

/**
 * Registers `explain`: which documents a prompt has, as a gateway would recognise them, and whether they may move; and,
 * beside an earlier prompt, where it stops being that prompt's continuation, and why.
 */
export function registerExplain(server: McpServer): void {
  server.registerTool(
    'explain',
    {
      title: 'Explain a prompt',
      description:
        'Says which documents Warmpath recognises in the messages of a prompt, in which form, and whether they may change places. ' +
        'With the messages of an earlier prompt: where the two differ first, why, and what can be done about it.',
      inputSchema: {
        messages: z.array(message).min(1).describe('The messages of the prompt, in their order.'),
        before: z.array(message).min(1).optional().describe('The messages of an earlier prompt.'),
      },
      outputSchema: {
        blocks: z.array(
          z.object({
            message: z.number(),
            format: z.string(),
            marked: z.boolean(),
            documents: z.array(z.object({ id: z.string(), tokens: z.number() })),
            fixed: z.string().nullable(),
          }),
        ),
        break: z
          .object({
            cause: z.string(),
            advice: z.string(),
            piece: z.string(),
            offset: z.number(),
            sharedTokens: z.number(),
            promptTokens: z.number(),
          })
          .nullable(),
      },
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
    },
    ({ messages, before }) => {
      const texts: readonly PromptText[] = messages.map(({ role, content }) => ({ role, text: content }));
      const blocks = recognise(texts, { mode: 'form' }).map((block) => ({
        message: block.text,
        format: block.format,
        marked: block.marked,
        documents: blockDocuments(texts[block.text]!.text, block).map(({ id, tokens }) => ({ id, tokens })),
        fixed: block.fixed ?? null,
      }));
      const broken = before === undefined ? undefined : findPrefixBreak(outline(before), piecesOf(messages));
      const lines = [describe(blocks), ...(before === undefined ? [] : [describeBreak(broken)])];
      return {
        content: [{ type: 'text', text: lines.join('\n') }],
        structuredContent: { blocks, break: broken === undefined ? null : breakOf(broken) },
      };
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

type Message = z.infer<typeof message>;

function piecesOf(messages: readonly Message[]): readonly PromptPiece[] {
  return messages.map(({ role, content }, at) => ({ name: `messages[${at}].content`, kind: role, text: content }));
}

function outline(messages: readonly Message[]) {
  return outlinePrompt(piecesOf(messages), { keepText: true });
}

function breakOf({ cause, piece, offset, sharedTokens, promptTokens }: PrefixBreak) {
  return { cause, advice: BREAK_CAUSES[cause], piece, offset, sharedTokens, promptTokens };
}

function describeBreak(broken: PrefixBreak | undefined): string {
  if (broken === undefined) return 'Continues the earlier prompt to its end.';
  const { cause, piece, offset, sharedTokens, promptTokens } = broken;
  return `Shares ${sharedTokens} of ${promptTokens} tokens with the earlier prompt, up to ${piece}, character ${offset}: ${cause}. ${BREAK_CAUSES[cause]}`;
}
