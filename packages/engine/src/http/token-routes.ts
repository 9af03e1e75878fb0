import { isUtf8 } from 'node:buffer';
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { Vocabulary } from '../native/vocabulary.js';
import { refuse } from '../structured/schema-node.js';
import { chatPrompt, type PromptSource, tokenIds, tokenizeOptions, withLeadingBos } from './prompts.js';
import { chatPromptFields, checkModel, parseBody } from './schemas.js';

const tokenizeSchema = z.object({
  model: z.string().nullish(),
  content: z.string().optional(),
  prompt: z.string().optional(),
  ...chatPromptFields,
  messages: chatPromptFields.messages.optional(),
  add_special: z.boolean().optional(),
  add_special_tokens: z.boolean().optional(),
  parse_special: z.boolean().optional(),
  with_pieces: z.boolean().optional(),
});

const detokenizeSchema = z.object({
  model: z.string().nullish(),
  // Checked by hand: there may be as many as the context holds.
  tokens: z.array(z.unknown()),
});

/** `POST /tokenize` and `POST /detokenize`, with the fields of llama-server and of vLLM. */
export function addTokenRoutes(server: FastifyInstance, app: PromptSource & { readonly model: string }): void {
  const { vocabulary, loop } = app;
  server.post('/tokenize', async (request, reply) => {
    const body = parseBody(tokenizeSchema, request.body);
    checkModel(body.model, app.model);
    const options = tokenizeOptions(app, reply);
    const text = body.content ?? body.prompt;
    let tokens: readonly number[];
    if (body.messages !== undefined) {
      ({ tokens } = await chatPrompt(app, { ...body, messages: body.messages }, options));
    } else if (text !== undefined) {
      const [plain] = await vocabulary.tokenize([{ text, parseSpecial: body.parse_special ?? true }], options);
      // `content` is llama-server's field and adds nothing by default; `prompt` is vLLM's and adds the BOS.
      const withBos = body.add_special ?? body.add_special_tokens ?? body.content === undefined;
      tokens = withBos ? withLeadingBos(plain!, vocabulary) : plain!;
    } else {
      throw refuse('content', 'Expected one of content, prompt and messages');
    }
    const listed = body.with_pieces === true ? await tokensWithPieces(tokens, vocabulary) : tokens;
    return { count: tokens.length, max_model_len: loop.contextTokens, tokens: listed };
  });

  server.post('/detokenize', async (request) => {
    const body = parseBody(detokenizeSchema, request.body);
    checkModel(body.model, app.model);
    const text = await vocabulary.detokenize(tokenIds(body.tokens, app, 'tokens'));
    // llama-server calls it `content`, vLLM `prompt`.
    return { content: text, prompt: text };
  });
}

/** As llama-server lists them: a piece that is no UTF-8 by itself as its bytes. */
async function tokensWithPieces(tokens: readonly number[], vocabulary: Vocabulary): Promise<object[]> {
  const pieces = await vocabulary.pieces(tokens);
  return pieces.map((bytes, place) => {
    const piece = isUtf8(bytes) ? Buffer.from(bytes).toString() : [...bytes];
    return { id: tokens[place]!, piece };
  });
}
