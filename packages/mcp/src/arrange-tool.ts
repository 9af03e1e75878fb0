import type { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { ArrangedContext, Arranger } from '@warmpath/client';
import { POLICY_NAMES } from '@warmpath/core';
import { TEXT_PLACES } from '@warmpath/core/internal';
import { z } from 'zod';

const switches = {
  policy: z.enum(POLICY_NAMES).optional().describe('Ordering policy; foresight without one.'),
  maxShift: z.number().int().min(0).optional().describe('Places a document may move from its retrieval rank.'),
  shiftPrice: z
    .number()
    .min(0)
    .max(1_000_000_000)
    .optional()
    .describe('Tokens that each place costs by which a document moves: it moves only where that saves more.'),
  hints: z.boolean().optional().describe('Whether to state the order of relevance when it changed. Default true.'),
  preamble: z.string().optional().describe('What your prompt has before the documents.'),
};

const input = {
  documents: z
    .array(
      z.union([
        z.string(),
        z.looseObject({
          id: z.union([z.string(), z.number()]).optional(),
          title: z.string().optional(),
          content: z.string().optional(),
        }),
      ]),
    )
    .min(1)
    .describe(`Retrieved documents, most relevant first: texts, or objects with a text ${TEXT_PLACES}.`),
  pin: z.array(z.string()).optional().describe('Ids of documents that keep their place.'),
  ...switches,
};

/** What `arrange` and `search` answer beside the text. */
export const arrangedOutput = {
  documents: z.array(z.object({ id: z.string(), label: z.string(), rank: z.number(), tokens: z.number() })),
  hint: z.string().nullable(),
  predictedCachedTokens: z.number(),
  warnings: z.array(z.string()),
};

/** The switches as tools take it. */
export const switchesInput = switches;

/** Registers `arrange`: documents in, the text for the prompt out, in an order that the engine's cache holds. */
export function registerArrange(server: McpServer, arranger: Arranger): void {
  server.registerTool(
    'arrange',
    {
      title: 'Arrange documents',
      description:
        'Puts retrieved documents in an order whose beginning the LLM engine has already computed, and states the order of ' +
        'relevance if it changed. Put the text that comes back into the prompt as it is.',
      inputSchema: input,
      outputSchema: arrangedOutput,
      annotations: { readOnlyHint: true, openWorldHint: false },
    },
    async ({ documents, ...asked }, { signal }) => {
      return toolResult(await arranger.arrange({ documents, ...defined(asked) }, { signal }));
    },
  );
}

/** A context as a tool's answer: the text for the prompt, and what it consists of. */
export function toolResult({ text, documents, hint, predictedCachedTokens, warnings }: ArrangedContext) {
  return {
    content: [{ type: 'text' as const, text }],
    structuredContent: {
      documents: documents.map(({ id, label, rank, tokens }) => ({ id, label, rank, tokens })),
      hint: hint?.text ?? null,
      predictedCachedTokens,
      warnings: warnings.map(({ code, path }) => `${code} ${path}`),
    },
  };
}

type Defined<Fields> = { [Name in keyof Fields]: Exclude<Fields[Name], undefined> };

/** Without the fields that were left out: what is optional here is absent there. */
export function defined<Fields extends object>(fields: Fields): Partial<Defined<Fields>> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<
    Defined<Fields>
  >;
}
