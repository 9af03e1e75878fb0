import { isDeepStrictEqual } from 'node:util';
import { refuse } from '../structured/schema-node.js';
import { chatCompletionSchema, completionSchema } from './schemas.js';

const words = (text: string): readonly string[] => text.trim().split(/\s+/);

/**
 * Fields of OpenAI, vLLM, SGLang and llama-server that would change the answer and that this engine refuses by name,
 * by the values that ask for nothing. `null` always asks for nothing.
 */
const REFUSED: readonly (readonly [nothing: readonly unknown[], names: readonly string[]])[] = [
  [
    [],
    words(`
      allowed_token_ids audio chat_template custom_logit_processor ebnf guided_choice guided_grammar
      guided_regex guided_whitespace_pattern kv_transfer_params lora_path prompt_embeds reasoning_effort regex
      repetition_detection samplers session_params structural_tag thinking_token_budget truncate_prompt_tokens
      web_search_options`),
  ],
  [
    [false],
    words(`
      add_special_tokens continue_final_message grammar_lazy include_stop_str_in_output no_stop_trim
      post_sampling_probs prompt_logprobs return_hidden_states return_token_ids return_tokens
      return_tokens_as_token_ids thinking_forced_open use_beam_search`),
  ],
  [[true], words('add_generation_prompt skip_special_tokens')],
  [[0], words('dry_multiplier dynatemp_range min_keep min_tokens mirostat n_indent n_probs xtc_probability')],
  [[0, -1], words('t_max_predict_ms t_max_prompt_ms top_n_sigma')],
  [[1], words('length_penalty n_cmpl typical_p')],
  [[-1], words('adaptive_target thinking_budget_tokens')],
  [[''], words('grammar input_prefix input_suffix suffix')],
  [
    [[]],
    words(`
      bad_words documents functions grammar_triggers image_data input_extra logits_processors lora response_fields
      stop_token_ids`),
  ],
  [[[], ''], words('stop_regex')],
  [[{}], words('chat_template_kwargs custom_params vllm_xargs')],
  [[['text']], words('modalities')],
  [['medium'], words('verbosity')],
  [['none', 'auto'], words('function_call')],
];

/** Each refused field with the values that ask for nothing. */
export const REFUSED_FIELDS: ReadonlyMap<string, readonly unknown[]> = new Map(
  REFUSED.flatMap(([nothing, names]) => names.map((name) => [name, nothing] as const)),
);

/** What to send in place of a refused field. */
const INSTEAD: Readonly<Record<string, string>> = {
  function_call: 'tool_choice',
  functions: 'tools',
  n_cmpl: 'n',
  n_probs: 'logprobs',
  stop_regex: 'stop',
  ...Object.fromEntries(
    words('ebnf grammar guided_choice guided_grammar guided_regex regex').map((name) => [name, 'json_schema']),
  ),
};

/** Fields of the same servers that change no answer here. */
export const IGNORED_FIELDS: readonly string[] = words(`
  adaptive_decay backend_sampling bootstrap_host bootstrap_port bootstrap_room cache_prompt chat_format
  dry_allowed_length dry_base dry_penalty_last_n dry_sequence_breakers dynatemp_exponent generation_prompt
  guided_decoding_backend id_slot include_reasoning media_io_kwargs metadata mirostat_eta mirostat_tau
  mm_processor_kwargs moderation n_cache_reuse n_discard n_keep parse_tool_calls prediction preserved_tokens
  prompt_cache_key prompt_cache_retention reasoning_control request_id return_progress rid safety_identifier
  separate_reasoning service_tier spaces_between_special_tokens speculative.n_max speculative.n_min speculative.p_min
  speculative.type sse_ping_interval store stream_reasoning timings_per_token truncation_side use_audio_in_video user
  verbose xtc_threshold`);

/**
 * Refuses a field that this engine knows and cannot honour, unless its value asks for nothing. Fields that no server
 * has are ignored.
 *
 * @param supported The fields that the route's schema has.
 * @throws WARMPATH_INVALID_REQUEST with the name of the field.
 */
export function refuseFields(body: unknown, supported: Readonly<Record<string, unknown>>): void {
  if (typeof body !== 'object' || body === null) return;
  for (const [name, value] of Object.entries(body)) {
    const nothing = Object.hasOwn(supported, name) ? undefined : REFUSED_FIELDS.get(name);
    const isEmpty = value === null || value === undefined || nothing?.some((each) => isDeepStrictEqual(each, value));
    if (nothing !== undefined && isEmpty !== true) {
      const advice = INSTEAD[name] === undefined ? 'Leave it out' : `Send ${INSTEAD[name]} instead`;
      throw refuse(name, `This engine does not support ${name}. ${advice}`);
    }
  }
}

/** What becomes of each field of a request for chat or plain completions, for the reference. */
export function requestFields(): Readonly<Record<'supported' | 'ignored' | 'refused', readonly string[]>> {
  const supported = new Set([...Object.keys(chatCompletionSchema.shape), ...Object.keys(completionSchema.shape)]);
  return {
    supported: [...supported].sort(),
    ignored: [...IGNORED_FIELDS].sort(),
    refused: [...REFUSED_FIELDS.keys()].filter((name) => !supported.has(name)).sort(),
  };
}
