import { isObject } from '../intake/apis/content-texts.js';
import type { JsonObject } from '../intake/apis/request-texts.js';

/** One step of an answer in the words of chat completions. */
export type ChatDelta =
  | { readonly kind: 'head'; readonly id: string | undefined; readonly model: string; readonly created: number }
  | { readonly kind: 'reasoning' | 'text' | 'refusal'; readonly text: string }
  | CallDelta
  | { readonly kind: 'finish'; readonly reason: string; readonly stop: string | undefined }
  | { readonly kind: 'usage'; readonly usage: ChatUsage }
  | { readonly kind: 'error'; readonly message: string; readonly code: string | undefined };

export interface CallDelta {
  readonly kind: 'call';
  /** Which call of the answer. */
  readonly index: number;
  readonly id: string | undefined;
  readonly name: string | undefined;
  readonly text: string;
}

/** Counts of an answer; those that the engine does not state are 0. */
export interface ChatUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

/** The steps that one chunk of a stream, or one whole completion, stands for. Only its first choice is read. */
export function chatDeltas(value: unknown): readonly ChatDelta[] {
  if (!isObject(value)) return [];
  const { error, choices, usage } = value;
  if (error !== undefined && error !== null) return [errorDelta(error)];
  const deltas: ChatDelta[] = [headDelta(value)];
  const choice: unknown = Array.isArray(choices) ? choices[0] : undefined;
  if (isObject(choice)) deltas.push(...choiceDeltas(choice));
  if (isObject(usage)) deltas.push({ kind: 'usage', usage: readUsage(usage) });
  return deltas;
}

function headDelta({ id, model, created }: JsonObject): ChatDelta {
  return {
    kind: 'head',
    id: typeof id === 'string' && id !== '' ? id : undefined,
    model: typeof model === 'string' ? model : '',
    created: typeof created === 'number' ? created : 0,
  };
}

function choiceDeltas({ delta, message, finish_reason: reason, stop_reason, matched_stop }: JsonObject): ChatDelta[] {
  const said = isObject(delta) ? delta : isObject(message) ? message : {};
  const deltas: ChatDelta[] = [];
  const add = (kind: 'reasoning' | 'text' | 'refusal', text: unknown): void => {
    if (typeof text === 'string' && text !== '') deltas.push({ kind, text });
  };
  // vLLM calls it `reasoning` now, and some engines send both names.
  add('reasoning', said['reasoning_content'] ?? said['reasoning']);
  for (const { kind, text } of contentOf(said['content'])) add(kind, text);
  add('refusal', said['refusal']);
  const calls: unknown = said['tool_calls'];
  if (Array.isArray(calls)) for (const [place, call] of calls.entries()) deltas.push(callDelta(call, place));
  if (typeof reason === 'string') {
    // vLLM and SGLang name the stop string that was met.
    const stop = [stop_reason, matched_stop].find((named) => typeof named === 'string');
    deltas.push({ kind: 'finish', reason, stop });
  }
  return deltas;
}

/** A text; Mistral's models that think write parts, some of which are thoughts. */
function contentOf(content: unknown, kind: Said['kind'] = 'text'): readonly Said[] {
  if (!Array.isArray(content)) return [{ kind, text: content }];
  return content.filter(isObject).flatMap(({ type, text, thinking }) => {
    return type === 'thinking' ? contentOf(thinking, 'reasoning') : [{ kind, text }];
  });
}

interface Said {
  readonly kind: 'reasoning' | 'text';
  readonly text: unknown;
}

function callDelta(given: unknown, place: number): CallDelta {
  const { index, id, function: called } = isObject(given) ? given : {};
  const { name, arguments: text } = isObject(called) ? called : {};
  return {
    kind: 'call',
    index: typeof index === 'number' ? index : place,
    id: typeof id === 'string' && id !== '' ? id : undefined,
    name: typeof name === 'string' && name !== '' ? name : undefined,
    text: typeof text === 'string' ? text : '',
  };
}

function errorDelta(error: unknown): ChatDelta {
  const { message, code } = isObject(error) ? error : { message: error };
  return {
    kind: 'error',
    message: typeof message === 'string' ? message : 'The engine answered with an error.',
    code: typeof code === 'string' ? code : undefined,
  };
}

function readUsage(usage: JsonObject): ChatUsage {
  const { prompt_tokens_details: prompt, completion_tokens_details: completion } = usage;
  return {
    promptTokens: count(usage['prompt_tokens']),
    cachedTokens: count(isObject(prompt) ? prompt['cached_tokens'] : 0),
    completionTokens: count(usage['completion_tokens']),
    reasoningTokens: count(isObject(completion) ? completion['reasoning_tokens'] : 0),
  };
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : 0;
}
