import type { Feedback, LocalWarmpath, OrderSwitches } from '@warmpath/client';
import { arrangePrompt, type PromptMessage, type PromptOptions } from '@warmpath/client/internal';
import type { DocumentInput } from '@warmpath/core';

/** What the request context has under `warmpath`. */
export interface WarmpathContext extends OrderSwitches {
  /** In retrieval order. */
  readonly documents: readonly DocumentInput[];
  /** Names the conversation that the messages are the history of. Default: the id of the memory's thread. */
  readonly session?: string;
  /** The end user whose conversation it is. Default: the id of the memory's resource. */
  readonly user?: string;
}

/** The part of Mastra's `ProcessLLMRequestArgs` that is used. Nothing of Mastra is imported: no version is tied. */
export interface LLMRequest<Message extends PromptMessage> {
  readonly prompt: Message[];
  readonly model: { readonly provider: string; readonly modelId: string };
  readonly agent?: { readonly id: string } | undefined;
  readonly requestContext?: { get(key: string): unknown } | undefined;
  /** What a processor keeps from one call of a request to the next. */
  readonly state: Record<string, unknown>;
}

/** The same of `ProcessLLMResponseArgs`. */
export interface LLMResponse {
  readonly chunks: readonly ResponseChunk[];
  readonly state: Record<string, unknown>;
  readonly fromCache: boolean;
}

interface ResponseChunk {
  readonly type: string;
  readonly payload: unknown;
}

/** A processor for `inputProcessors` of an agent. */
export interface WarmpathProcessor {
  readonly id: 'warmpath';
  /** Puts the documents of the request context into the prompt. Errors: those of `LocalWarmpath.arrangeChat`. */
  processLLMRequest<Message extends PromptMessage>(request: LLMRequest<Message>): { prompt: Message[] } | undefined;
  /** Tells what the engine had cached, or that it failed. */
  processLLMResponse(response: LLMResponse): Promise<void>;
}

/** What a request keeps from one step of the agent to the next. */
interface RequestState {
  readonly session: string;
  readonly user: string | undefined;
  chat: Feedback;
}

const KEY = 'warmpath';

/** Where Mastra keeps which thread and resource a request belongs to. */
const MEMORY_KEY = 'MastraMemory';

interface MemoryContext {
  readonly thread?: { readonly id: string };
  readonly resourceId?: string;
}

/**
 * Documents under `warmpath` of the request context go in front of the user's message, in an order that the engine
 * holds. Only what is sent to the model changes; memory keeps the messages without documents. In further steps of the
 * same request, behind tool calls, the prompt begins with the same bytes. An agent with a memory names its
 * conversations by itself: the thread is the session, the resource the end user.
 */
export function warmpathProcessor(warmpath: LocalWarmpath, options: PromptOptions = {}): WarmpathProcessor {
  let requests = 0;
  return {
    id: KEY,

    processLLMRequest({ prompt, model, agent, requestContext, state }) {
      const asked = requestContext?.get(KEY) as Partial<WarmpathContext> | undefined;
      const memory = requestContext?.get(MEMORY_KEY) as MemoryContext | undefined;
      const named = asked?.session ?? memory?.thread?.id;
      const isTurn = named !== undefined && prompt.some(({ role }) => role === 'user');
      if (asked?.documents === undefined && !isTurn) return undefined;
      const known = state[KEY] as RequestState | undefined;
      // The steps of one request are the turns of a conversation: documents that still stand in it are not sent again,
      // and those that another processor cut away come back.
      const session = known?.session ?? named ?? `request ${requests++}`;
      const user = known?.user ?? asked?.user ?? memory?.resourceId;
      const request = {
        ...asked,
        documents: asked?.documents ?? [],
        session,
        ...(user !== undefined && { user }),
        messages: prompt.map(withoutTimes),
        scope: `${model.provider}\n${model.modelId}\n${agent?.id ?? ''}`,
      };
      const chat = arrangePrompt(warmpath, request, options);
      state[KEY] = { session, user, chat } satisfies RequestState;
      // Messages that were added to have the form they had.
      return { prompt: chat.messages as typeof prompt };
    },

    async processLLMResponse({ chunks, state, fromCache }) {
      const { chat } = (state[KEY] as RequestState | undefined) ?? {};
      const isPrefilled = !fromCache && chunks.some(({ type }) => type === 'finish' || type.endsWith('-delta'));
      const finish = chunks.findLast(({ type }) => type === 'finish')?.payload as
        | { readonly output?: unknown }
        | undefined;
      await (isPrefilled ? chat?.completed(finish?.output) : chat?.failed());
    },
  };
}

/** Mastra notes in each part when it was made; models do not see that, and it would tell equal messages apart. */
function withoutTimes(message: PromptMessage): PromptMessage {
  if (typeof message.content === 'string') return message;
  const content = message.content.map((part) => {
    const { providerOptions, ...rest } = part as { readonly providerOptions?: Readonly<Record<string, unknown>> };
    const { mastra: _, ...others } = providerOptions ?? {};
    return Object.keys(others).length === 0 ? rest : { ...rest, providerOptions: others };
  });
  return { ...message, content };
}
