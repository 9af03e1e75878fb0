import { refuse } from '../structured/schema-node.js';
import { chatCompletionSchema, completionSchema } from './schemas.js';

/** A field that would change the answer, or what is told of it, and that this engine cannot honour. */
interface RefusedField {
  /** Values that ask for nothing. `null` always does. */
  readonly nothing: readonly unknown[];
  /** The field that does the same here. */
  readonly instead?: string;
}

const refused = (...nothing: readonly unknown[]): RefusedField => ({ nothing });
const replaced = (instead: string, ...nothing: readonly unknown[]): RefusedField => ({ nothing, instead });

/**
 * Fields of OpenAI, vLLM, SGLang and llama-server that this engine refuses by name. With the fields of the schemas and
 * {@link IGNORED_FIELDS} these are all fields of those servers.
 */
export const REFUSED_FIELDS: Readonly<Record<string, RefusedField>> = {
  // Messages and prompts.
  add_generation_prompt: refused(true),
  add_special_tokens: refused(false),
  audio: refused(),
  chat_template: refused(),
  chat_template_kwargs: refused({}),
  continue_final_message: refused(false),
  documents: refused([]),
  function_call: replaced('tool_choice', 'none', 'auto'),
  functions: replaced('tools', []),
  image_data: refused([]),
  input_extra: refused([]),
  input_prefix: refused(''),
  input_suffix: refused(''),
  modalities: refused(['text']),
  prompt_embeds: refused(),
  reasoning_effort: refused(),
  suffix: refused(''),
  thinking_budget_tokens: refused(-1),
  thinking_forced_open: refused(false),
  thinking_token_budget: refused(),
  truncate_prompt_tokens: refused(),
  verbosity: refused('medium'),
  web_search_options: refused(),
  // Sampling.
  adaptive_target: refused(-1),
  allowed_token_ids: refused(),
  bad_words: refused([]),
  custom_logit_processor: refused(),
  custom_params: refused({}),
  dry_multiplier: refused(0),
  dynatemp_range: refused(0),
  length_penalty: refused(1),
  logits_processors: refused([]),
  lora: refused([]),
  lora_path: refused(),
  min_keep: refused(0),
  min_tokens: refused(0),
  mirostat: refused(0),
  samplers: refused(),
  top_n_sigma: refused(0, -1),
  typical_p: refused(1),
  use_beam_search: refused(false),
  vllm_xargs: refused({}),
  xtc_probability: refused(0),
  // Form and end of the answer.
  ebnf: replaced('json_schema'),
  grammar: replaced('json_schema', ''),
  grammar_lazy: refused(false),
  grammar_triggers: refused([]),
  guided_choice: replaced('json_schema'),
  guided_grammar: replaced('json_schema'),
  guided_regex: replaced('json_schema'),
  guided_whitespace_pattern: refused(),
  include_stop_str_in_output: refused(false),
  n_cmpl: replaced('n', 1),
  n_indent: refused(0),
  no_stop_trim: refused(false),
  regex: replaced('json_schema'),
  repetition_detection: refused(),
  skip_special_tokens: refused(true),
  stop_regex: replaced('stop', [], ''),
  stop_token_ids: refused([]),
  structural_tag: refused(),
  t_max_predict_ms: refused(0, -1),
  t_max_prompt_ms: refused(0, -1),
  // What is told beside the answer.
  kv_transfer_params: refused(),
  n_probs: replaced('logprobs', 0),
  post_sampling_probs: refused(false),
  prompt_logprobs: refused(false),
  response_fields: refused([]),
  return_hidden_states: refused(false),
  return_token_ids: refused(false),
  return_tokens: refused(false),
  return_tokens_as_token_ids: refused(false),
  session_params: refused(),
};

/** Fields of the same servers that change no answer here. */
export const IGNORED_FIELDS: readonly string[] = [
  // Names, accounts, and how other servers compute.
  ...[
    'backend_sampling',
    'bootstrap_host',
    'bootstrap_port',
    'bootstrap_room',
    'cache_prompt',
    'guided_decoding_backend',
  ],
  ...['id_slot', 'metadata', 'moderation', 'n_cache_reuse', 'prediction', 'prompt_cache_key', 'prompt_cache_retention'],
  ...['request_id', 'rid', 'safety_identifier', 'service_tier', 'store', 'user'],
  ...['speculative.n_max', 'speculative.n_min', 'speculative.p_min', 'speculative.type'],
  // What says nothing without a field that is refused.
  ...['adaptive_decay', 'chat_format', 'dry_allowed_length', 'dry_base', 'dry_penalty_last_n', 'dry_sequence_breakers'],
  ...[
    'dynatemp_exponent',
    'generation_prompt',
    'media_io_kwargs',
    'mirostat_eta',
    'mirostat_tau',
    'mm_processor_kwargs',
  ],
  ...[
    'n_discard',
    'n_keep',
    'parse_tool_calls',
    'preserved_tokens',
    'truncation_side',
    'use_audio_in_video',
    'xtc_threshold',
  ],
  // Reasoning is always told apart, as it comes.
  ...['include_reasoning', 'reasoning_control', 'separate_reasoning', 'stream_reasoning'],
  // How an answer is sent.
  ...['return_progress', 'spaces_between_special_tokens', 'sse_ping_interval', 'timings_per_token', 'verbose'],
];

/**
 * Refuses a field that this engine knows and cannot honour, unless its value asks for nothing. Fields that no server
 * has are ignored.
 *
 * @param supported The fields that the route's schema has.
 * @throws WARMPATH_INVALID_REQUEST with the name of the field.
 */
export function refuseFields(body: unknown, supported: Readonly<Record<string, unknown>>): void {
  if (typeof body !== 'object' || body === null) {
    return;
  }
  for (const [name, value] of Object.entries(body)) {
    const field =
      Object.hasOwn(REFUSED_FIELDS, name) && !Object.hasOwn(supported, name) ? REFUSED_FIELDS[name] : undefined;
    if (field !== undefined && !asksForNothing(value, field)) {
      const advice = field.instead === undefined ? 'Leave it out' : `Send ${field.instead} instead`;
      throw refuse(name, `This engine does not support ${name}. ${advice}`);
    }
  }
}

function asksForNothing(value: unknown, { nothing }: RefusedField): boolean {
  return (
    value === null || value === undefined || nothing.some((each) => JSON.stringify(each) === JSON.stringify(value))
  );
}

/** What becomes of each field of a request for chat or plain completions, for the reference. */
export function requestFields(): Readonly<Record<'supported' | 'ignored' | 'refused', readonly string[]>> {
  const supported = new Set([...Object.keys(chatCompletionSchema.shape), ...Object.keys(completionSchema.shape)]);
  return {
    supported: [...supported].sort(),
    ignored: [...IGNORED_FIELDS].sort(),
    refused: Object.keys(REFUSED_FIELDS)
      .filter((name) => !supported.has(name))
      .sort(),
  };
}
