import { WarmpathError } from '@warmpath/core';
import type { FastifyReply } from 'fastify';
import type { ChatTemplate } from '../chat/chat-template.js';
import { type SegmentedPrompt, tokenBoundaries } from '../chat/segmented-prompt.js';
import type { TokenizeOptions, Vocabulary } from '../native/vocabulary.js';
import { refuse } from '../structured/schema-node.js';
import { readTools } from './answer-form.js';
import { readConversation } from './chat-request.js';
import type { ChatPromptFields } from './schemas.js';

export interface PromptSource {
  readonly template: ChatTemplate;
  readonly vocabulary: Vocabulary;
  readonly loop: { readonly contextTokens: number };
}

/** A prompt of a request, which is a text or token ids, and where it stands in the body. */
interface PlacedPrompt {
  readonly value: unknown;
  readonly path: string;
}

/** The prompts of a field: a text, token ids, or an array of either. */
export function promptsOf(field: unknown, name: string): readonly PlacedPrompt[] {
  const isSeveral = Array.isArray(field) && field.some((each) => typeof each === 'string' || Array.isArray(each));
  return isSeveral
    ? field.map((value: unknown, index) => ({ value, path: field.length === 1 ? name : `${name}[${index}]` }))
    : [{ value: field, path: name }];
}

/** Tokenising ends when the client has gone, or at more tokens than the context holds. */
export function tokenizeOptions({ loop }: PromptSource, { raw }: FastifyReply): Required<TokenizeOptions> {
  return { most: loop.contextTokens, isWanted: () => !raw.destroyed };
}

/** A conversation as the chat route would compute it. */
export function chatPrompt(
  { template }: PromptSource,
  fields: ChatPromptFields,
  options: Required<TokenizeOptions>,
): Promise<SegmentedPrompt> {
  const { messages, opensAnswer, ...conversation } = readConversation(fields);
  return template.tokenize(messages, opensAnswer, { ...options, ...conversation, tools: readTools(fields.tools) });
}

interface PlainPromptFields {
  /** Where documents end: UTF-16 code units of a text, or numbers of tokens. */
  readonly segments?: readonly number[] | null | undefined;
  readonly add_special_tokens?: boolean | null | undefined;
}

export async function plainPrompt(
  source: PromptSource,
  { value, path }: PlacedPrompt,
  { segments, add_special_tokens: addsBos }: PlainPromptFields,
  options: Required<TokenizeOptions>,
): Promise<SegmentedPrompt> {
  const { vocabulary } = source;
  const offsets = [...new Set(segments)].sort((a, b) => a - b);
  if (typeof value === 'string') {
    const [plain] = value === '' ? [[]] : await vocabulary.tokenize([{ text: value, parseSpecial: true }], options);
    const tokens = value === '' || addsBos === false ? plain! : withLeadingBos(plain!, vocabulary);
    const added = tokens.length - plain!.length;
    const boundaries = tokenBoundaries([{ text: value, tokens: plain! }], offsets, vocabulary);
    return { tokens, boundaries: boundaries.map((boundary) => boundary + added) };
  }
  if (!Array.isArray(value) || !value.every((token) => Number.isInteger(token))) {
    throw refuse(path, 'Expected a string or an array of token ids');
  }
  const tokens = tokenIds(value, source, path);
  return { tokens, boundaries: offsets.filter((offset) => offset > 0 && offset < tokens.length) };
}

/** The tokens of a text to embed, with those that the model wants around it. */
export async function embeddedTokens(
  source: PromptSource,
  prompt: PlacedPrompt,
  options: Required<TokenizeOptions>,
): Promise<readonly number[]> {
  const { path, value } = prompt;
  const { tokens } = await plainPrompt(source, prompt, {}, options);
  const { trailingEnd } = source.vocabulary;
  const all = typeof value === 'string' && trailingEnd !== undefined ? [...tokens, trailingEnd] : tokens;
  if (all.length === 0) throw new WarmpathError('WARMPATH_EMPTY_PROMPT', { path });
  if (all.length > options.most) {
    const detail = `The maximum context length of a text to embed is ${options.most} tokens, but it has ${all.length}.`;
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { path, detail });
  }
  return all;
}

/** @throws WARMPATH_INVALID_REQUEST with the place of what is no token id; WARMPATH_CONTEXT_TOO_LONG. */
export function tokenIds(values: readonly unknown[], { vocabulary, loop }: PromptSource, path: string): number[] {
  if (values.length > loop.contextTokens) {
    const detail = `The maximum context length is ${loop.contextTokens} tokens, but there are ${values.length}.`;
    throw new WarmpathError('WARMPATH_CONTEXT_TOO_LONG', { path, detail });
  }
  const isTokenId = (token: unknown): boolean =>
    Number.isInteger(token) && Number(token) >= 0 && Number(token) < vocabulary.size;
  const index = values.findIndex((token) => !isTokenId(token));
  if (index >= 0) throw refuse(`${path}[${index}]`, `Expected a token id below ${vocabulary.size}`);
  return values as number[];
}

export function withLeadingBos(tokens: number[], vocabulary: Vocabulary): number[] {
  const bos = vocabulary.leadingBos;
  return bos === undefined || tokens[0] === bos ? tokens : [bos, ...tokens];
}
