import type { DocumentInterface } from '@langchain/core/documents';
import { ToolMessage } from '@langchain/core/messages';
import type { Arranger } from '@warmpath/client';
import { OpenContexts } from '@warmpath/client/internal';
import { fingerprint } from '@warmpath/core/internal';
import { type AgentMiddleware, createMiddleware } from 'langchain';
import { type ArrangeOptions, arrangeDocuments, formatDocuments } from './arranged-documents.js';
import { saidIn } from './feedback.js';

export interface AgentOptions extends ArrangeOptions {
  /**
   * Names the conversation to the gateway that the model is reached through, in the header `x-warmpath-session`.
   * Default: the agent's `thread_id`; `false` sends none. Models that take no headers ignore it.
   */
  readonly session?: ((configurable: Readonly<Record<string, unknown>>) => string | undefined) | false;
}

/**
 * Middleware for agents. What a tool found (documents as its `artifact`, as `responseFormat: 'content_and_artifact'`
 * has it) is written in an order that the engine holds, once, when the tool answers: it stands in the agent's state
 * that way, so that later prompts repeat it to the byte. What the engine had cached is reported back.
 */
export function warmpathMiddleware(arranger: Arranger, options: AgentOptions = {}): AgentMiddleware {
  const open = new OpenContexts();
  const { session = threadOf, ...arrangeOptions } = options;
  return createMiddleware({
    name: 'WarmpathMiddleware',

    wrapToolCall: async (request, handler) => {
      const answer = await handler(request);
      if (!ToolMessage.isInstance(answer) || !isDocuments(answer.artifact)) return answer;
      // Only what stands behind the same conversation can share an engine's prefix.
      const preamble = options.preamble ?? fingerprint([saidIn(request.state.messages)]);
      const artifact = await arrangeDocuments(answer.artifact, arranger, { ...arrangeOptions, preamble, open });
      return new ToolMessage({ ...messageFields(answer), content: formatDocuments(artifact), artifact });
    },

    wrapModelCall: async (request, handler) => {
      const sent = open.take(saidIn([request.systemMessage, ...request.messages]));
      const name = session === false ? undefined : session(request.runtime.configurable ?? {});
      try {
        const answer = await handler(
          name === undefined ? request : { ...request, modelSettings: named(request.modelSettings, name) },
        );
        await sent.completed(answer);
        return answer;
      } catch (error) {
        await sent.failed();
        throw error;
      }
    },
  });
}

function threadOf({ thread_id: thread }: Readonly<Record<string, unknown>>): string | undefined {
  return typeof thread === 'string' ? thread : undefined;
}

/**
 * The model's settings with the header beside those that are there. `ChatOpenAI` reads headers below `options`, and
 * when it streams, beside them, as `ChatAnthropic` does.
 */
function named(settings: Readonly<Record<string, unknown>> | undefined, session: string): Record<string, unknown> {
  const options = settings?.['options'] as { readonly headers?: object } | undefined;
  const header = { 'x-warmpath-session': session };
  const headers = { ...(settings?.['headers'] as object | undefined), ...header };
  return { ...settings, headers, options: { ...options, headers: { ...options?.headers, ...header } } };
}

function messageFields({
  tool_call_id,
  name,
  status,
  id,
  metadata,
  additional_kwargs,
  response_metadata,
}: ToolMessage) {
  return {
    tool_call_id,
    additional_kwargs,
    response_metadata,
    ...(name !== undefined && { name }),
    ...(status !== undefined && { status }),
    ...(id !== undefined && { id }),
    ...(metadata !== undefined && { metadata }),
  };
}

function isDocuments(artifact: unknown): artifact is DocumentInterface[] {
  if (!Array.isArray(artifact) || artifact.length === 0) return false;
  return artifact.every((one: unknown) => typeof (one as DocumentInterface | null)?.pageContent === 'string');
}
