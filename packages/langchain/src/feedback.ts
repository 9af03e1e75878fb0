import { BaseCallbackHandler } from '@langchain/core/callbacks/base';
import type { Serialized } from '@langchain/core/load/serializable';
import { AIMessage, type BaseMessage } from '@langchain/core/messages';
import type { LLMResult } from '@langchain/core/outputs';
import type { OpenContexts, SentContexts } from '@warmpath/client/internal';
import { canonicalJson } from '@warmpath/core/internal';

/** A call to a model that is under way. */
interface Run {
  readonly sent: SentContexts;
  hasContent: boolean;
}

/** Calls under way that are remembered; of more, the oldest counts as served. */
const MAX_RUNS = 1_024;

/**
 * Callbacks that read usage back: which of the arranged contexts stand in a prompt, and how much of it the engine had
 * cached (`usage_metadata.input_token_details.cache_read`). With streams, ask the model for usage (`streamUsage`, on by
 * default).
 */
export class WarmpathFeedback extends BaseCallbackHandler {
  override readonly name = 'warmpath';
  readonly #open: OpenContexts;
  readonly #runs = new Map<string, Run>();

  constructor(open: OpenContexts) {
    super();
    this.#open = open;
    // The chain waits for it, so that the next prompt is arranged with what was learned.
    this.awaitHandlers = true;
  }

  override handleChatModelStart(_llm: Serialized, messages: BaseMessage[][], runId: string): void {
    this.#start(runId, messages.map(saidIn).join('\n'));
  }

  override handleLLMStart(_llm: Serialized, prompts: string[], runId: string): void {
    this.#start(runId, prompts.join('\n'));
  }

  override handleLLMNewToken(_token: string, _index: unknown, runId: string): void {
    const run = this.#runs.get(runId);
    if (run !== undefined) run.hasContent = true;
  }

  override async handleLLMEnd(output: LLMResult, runId: string): Promise<void> {
    const [generation] = output.generations[0] ?? [];
    await this.#end(runId)?.sent.completed((generation as { readonly message?: unknown } | undefined)?.message);
  }

  /** A prompt whose answer had begun is prefilled, whatever became of the rest. */
  override async handleLLMError(_error: Error, runId: string): Promise<void> {
    const run = this.#end(runId);
    await (run?.hasContent ? run.sent.completed() : run?.sent.failed());
  }

  #start(runId: string, prompt: string): void {
    const sent = this.#open.take(prompt);
    if (sent.size === 0) return;
    if (this.#runs.size >= MAX_RUNS) this.#runs.delete(this.#runs.keys().next().value!);
    this.#runs.set(runId, { sent, hasContent: false });
  }

  #end(runId: string): Run | undefined {
    const run = this.#runs.get(runId);
    this.#runs.delete(runId);
    return run;
  }
}

/**
 * What messages say, as far as it is text; calls of tools by name and arguments, without their ids, which are drawn.
 */
export function saidIn(messages: readonly BaseMessage[]): string {
  const said = messages.map((message) => {
    const calls = AIMessage.isInstance(message) ? (message.tool_calls ?? []) : [];
    return [message.text, ...calls.map(({ name, args }) => `${name} ${canonicalJson(args)}`)].join('\n');
  });
  return said.join('\n');
}
