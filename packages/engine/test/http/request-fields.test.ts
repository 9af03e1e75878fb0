import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { IGNORED_FIELDS, REFUSED_FIELDS } from '../../src/http/request-fields.js';
import { chatCompletionSchema, completionSchema } from '../../src/http/schemas.js';
import { TestEngine } from '../support/engine.js';

const CHAT = '/v1/chat/completions';
const PLAIN = '/v1/completions';

const words = (text: string): string[] => text.trim().split(/\s+/);

/** The fields of chat and plain completions of each server, as their sources name them. */
const SERVERS = {
  OpenAI: words(`
    audio best_of echo frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
    messages metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt
    prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop
    store stream stream_options suffix temperature tool_choice tools top_logprobs top_p user verbosity
    web_search_options`),
  vLLM: words(`
    add_generation_prompt add_special_tokens allowed_token_ids bad_words best_of cache_salt chat_template
    chat_template_kwargs continue_final_message documents echo guided_choice guided_decoding_backend guided_grammar
    guided_json guided_regex guided_whitespace_pattern ignore_eos include_reasoning include_stop_str_in_output
    kv_transfer_params length_penalty logits_processors media_io_kwargs min_p min_tokens mm_processor_kwargs priority
    prompt_embeds prompt_logprobs repetition_detection repetition_penalty request_id return_token_ids
    return_tokens_as_token_ids skip_special_tokens spaces_between_special_tokens stop_token_ids structural_tag
    structured_outputs thinking_token_budget top_k truncate_prompt_tokens truncation_side use_audio_in_video
    use_beam_search vllm_xargs`),
  'llama-server': words(`
    adaptive_decay adaptive_target backend_sampling cache_prompt chat_format dry_allowed_length dry_base dry_multiplier
    dry_penalty_last_n dry_sequence_breakers dynatemp_exponent dynatemp_range generation_prompt grammar grammar_lazy
    grammar_triggers id_slot image_data input_extra input_prefix input_suffix json_schema lora min_keep min_p mirostat
    mirostat_eta mirostat_tau n_cache_reuse n_cmpl n_discard n_indent n_keep n_predict n_probs parse_tool_calls
    post_sampling_probs preserved_tokens reasoning_control reasoning_format repeat_last_n repeat_penalty response_fields
    return_progress return_tokens samplers speculative.n_max speculative.n_min speculative.p_min speculative.type
    sse_ping_interval t_max_predict_ms t_max_prompt_ms thinking_budget_tokens thinking_forced_open timings_per_token
    top_k top_n_sigma typical_p verbose xtc_probability xtc_threshold`),
  SGLang: words(`
    bootstrap_host bootstrap_port bootstrap_room custom_logit_processor custom_params ebnf lora_path no_stop_trim regex
    return_hidden_states rid separate_reasoning session_params stop_regex stream_reasoning`),
};

const SUPPORTED = new Set([...Object.keys(chatCompletionSchema.shape), ...Object.keys(completionSchema.shape)]);

const ask = (fields: object): object => ({ messages: [{ role: 'user', content: 'a' }], max_tokens: 1, ...fields });

describe('the fields of requests', () => {
  let engine: TestEngine;
  beforeAll(async () => {
    engine = await TestEngine.start({ contextTokens: 512 });
  });
  afterAll(() => engine.close());

  it.each(Object.entries(SERVERS))('are all known: %s', (_, names) => {
    const known = new Set([...SUPPORTED, ...REFUSED_FIELDS.keys(), ...IGNORED_FIELDS]);
    expect(names.filter((name) => !known.has(name))).toEqual([]);
  });

  it('stand in one list each', () => {
    const names = [...IGNORED_FIELDS, ...REFUSED_FIELDS.keys()];
    expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
    expect(IGNORED_FIELDS.filter((name) => SUPPORTED.has(name))).toEqual([]);
  });

  it.each([
    [CHAT, ask({}), chatCompletionSchema.shape],
    [PLAIN, { prompt: 'a' }, completionSchema.shape],
  ])('are refused by name where they would change the answer: %s', async (path, body, supported) => {
    for (const name of [...REFUSED_FIELDS.keys()].filter((each) => !Object.hasOwn(supported, each))) {
      const error = await engine.error(path, { ...body, [name]: 'x' });
      expect(error).toMatchObject({ status: 400, code: 'WARMPATH_INVALID_REQUEST', param: name });
    }
  });

  it('are no matter where they ask for nothing, and where no server has them', async () => {
    const nothing = Object.fromEntries([...REFUSED_FIELDS].map(([name, nothing]) => [name, nothing[0] ?? null]));
    const ignored = Object.fromEntries(IGNORED_FIELDS.map((name) => [name, 'x']));
    const plain = await engine.chat('a', { max_tokens: 8 });
    const asked = await engine.chat('a', { max_tokens: 8, ...nothing, ...ignored, mine: { a: 1 } });
    expect(asked.choices).toEqual(plain.choices);
  });

  it('take the values of llama-server that stand for a default', async () => {
    const room = await engine.complete('a', { max_tokens: -1, ignore_eos: true });
    expect(room.usage.total_tokens).toBe(512);
    expect(
      (await engine.complete('a', { max_tokens: null, n_predict: 3, ignore_eos: true })).usage.completion_tokens,
    ).toBe(3);
    const greedy = await engine.complete('a', { max_tokens: 8 });
    for (const fields of [{ top_p: 0 }, { top_k: 1 }, { min_p: 1 }]) {
      const drawn = await engine.complete('a', { max_tokens: 8, temperature: 2, seed: -1, ...fields });
      expect(drawn.choices).toEqual(greedy.choices);
    }
  });

  it('forbid and prefer tokens in both forms', async () => {
    const [first] = await engine.tokenize({ content: (await engine.complete('Alpha')).choices[0]!.text! });
    for (const biases of [{ [first!]: -100 }, [[first, -100]], [[first, false]]]) {
      const { choices } = await engine.complete('Alpha', { logit_bias: biases });
      expect(await engine.tokenize({ content: choices[0]!.text! })).not.toEqual([first]);
    }
    expect(await engine.error(PLAIN, { prompt: 'a', logit_bias: [[1, 2, 3], 4] })).toMatchObject({
      param: 'logit_bias',
    });
  });

  it('repeat_penalty looks back as far as repeat_last_n says', async () => {
    const prompt = Array.from({ length: 100 }, (_, index) => 300 + index);
    const penalised = async (fields: object): Promise<string> =>
      (await engine.complete(prompt, { max_tokens: 12, ...fields })).choices[0]!.text!;
    const none = await penalised({});
    expect(await penalised({ repeat_penalty: 5, repeat_last_n: 0 })).toBe(none);
    expect(await penalised({ repeat_penalty: 5, repeat_last_n: -1 })).toBe(await penalised({ repetition_penalty: 5 }));
    expect(await penalised({ repeat_penalty: 5 })).toBe(await penalised({ repeat_penalty: 5, repeat_last_n: 64 }));
  });

  it('a prompt that is too long has the code that OpenAI clients know', async () => {
    const client = new OpenAI({ baseURL: `${engine.server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const long = 'word '.repeat(2000);
    for (const call of [
      client.completions.create({ model: '', prompt: long }),
      client.completions.create({ model: '', prompt: Array.from({ length: 600 }, () => 300) }),
      client.completions.create({ model: '', prompt: 'a', max_tokens: 5000 }),
      client.chat.completions.create({ model: '', messages: [{ role: 'user', content: long }] }),
    ]) {
      const error = await call.then(
        () => undefined,
        (cause: unknown) => cause,
      );
      expect(error).toBeInstanceOf(OpenAI.BadRequestError);
      expect(error).toMatchObject({ code: 'context_length_exceeded' });
      expect(String(error)).toContain('maximum context length is 512 tokens');
      expect(String(error)).toContain('--context-tokens');
    }
  });

  it('a model is found by its name', async () => {
    const client = new OpenAI({ baseURL: `${engine.server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const [listed] = (await client.models.list()).data;
    expect(await client.models.retrieve(listed!.id)).toEqual(listed);
    await expect(client.models.retrieve('org/other')).rejects.toMatchObject({ status: 404 });
  });

  it('several answers and prompts are choices in their order, streamed too', async () => {
    const client = new OpenAI({ baseURL: `${engine.server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const fields = { model: '', max_tokens: 6, temperature: 2, seed: 3 };
    const chat = { ...fields, messages: [{ role: 'user' as const, content: 'Who?' }], n: 3 };
    const { choices, usage } = await client.chat.completions.create(chat);
    expect(choices.map(({ index }) => index)).toEqual([0, 1, 2]);
    expect(new Set(choices.map(({ message }) => message.content)).size).toBeGreaterThan(1);
    const alone = await client.chat.completions.create({ ...chat, n: 1, seed: 4 });
    expect(choices[1]!.message.content).toBe(alone.choices[0]!.message.content);
    expect(usage!.prompt_tokens).toBe(alone.usage!.prompt_tokens);
    const streamed = await client.chat.completions.stream({ ...chat, stream: true }).finalChatCompletion();
    expect(streamed.choices.map(({ message }) => message.content)).toEqual(
      choices.map(({ message }) => message.content),
    );

    const prompts = ['Alpha', 'Beta is'];
    const both = await client.completions.create({ ...fields, temperature: 0, prompt: prompts, n: 2, echo: true });
    expect(both.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    const single = await engine.complete('Beta is', { max_tokens: 6 });
    expect(both.choices[2]!.text).toBe(`Beta is${single.choices[0]!.text}`);
    const tokens = await Promise.all(prompts.map((content) => engine.tokenize({ prompt: content })));
    expect(both.usage!.prompt_tokens).toBe(tokens.flat().length);
    const again = await client.completions.create({ ...fields, temperature: 0, prompt: tokens });
    expect(again.choices.map(({ text }, index) => prompts[index] + text)).toEqual([
      both.choices[0]!.text,
      both.choices[2]!.text,
    ]);
    let text = '';
    for await (const chunk of await client.completions.create({
      ...fields,
      temperature: 0,
      prompt: 'Alpha',
      echo: true,
      stream: true,
    })) {
      text += chunk.choices[0]!.text;
    }
    expect(text).toBe(both.choices[0]!.text);
    await expect(client.completions.create({ ...fields, prompt: ['a', ''] })).rejects.toMatchObject({ status: 400 });
    expect(engine.server.stats()).toMatchObject({ running: 0, waiting: 0 });
  });
});
