import type { ChatPrompt, CompletionPrompt } from '../intake/apis/prompt-api.js';
import type { ExtractedRequest } from '../intake/extract.js';

/** What a prompt's beginning is read from. */
export interface PromptSource extends Pick<ExtractedRequest, 'api' | 'model' | 'rawValue'> {
  readonly prompt: Pick<ChatPrompt, 'kind' | 'messages'> | CompletionPrompt | undefined;
}

/** What decides the prompt's beginning beside the messages: model, tools and the like, as the client wrote them. O(their length). */
export function promptScope({ api, model, rawValue }: PromptSource): string {
  const parts = [JSON.stringify(model)];
  for (const field of api.promptFields) {
    const value = rawValue(field);
    if (value !== undefined) parts.push(`${field}:${value}`);
  }
  return parts.join('\n');
}
