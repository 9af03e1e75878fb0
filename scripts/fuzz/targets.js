// What is fuzzed: everything that reads what a client, an engine, an operator or a disk hands to Warmpath.
//
// A target's `run` throws where a promise is broken: an error that is none of the documented ones, or an answer that
// differs from that of the same input read another way. `tokens` are words of the input's language.
const JSON_TOKENS = ['{', '}', '[', ']', ',', ':', '"', '\\', '\\u0041', '\\"', 'null', 'true', '1e9', '-0', '"a":'];
const REQUEST_TOKENS = [
  ...JSON_TOKENS,
  ...['"documents"', '"warmpath"', '"messages"', '"content"', '"role":"user"', '"model"', '"session"', '"bypass":true'],
  ...['"input"', '"system"', '"instructions"', '"type":"tool_result"', '"type":"document"', '"prompt_cache_key"'],
  ...['__proto__', 'constructor', '"metadata":{"user_id":"u"}', '"safety_identifier"', '\ud83d\ude00', '"prompt"'],
];
const PROMPT_TOKENS = [
  ...['<document>', '</document>', '<doc index="1">', '</doc>', '<warmpath-documents>', '</warmpath-documents>'],
  ...['[1] ', '[2] ', 'Document 1:', 'Document 2:', 'Source: ', 'Title: ', '\n\n', '\n---\n', '## ', '1. ', '2. '],
  ...['[{"content":"', '"},{"content":"', '"}]', "[Document(page_content='", "', metadata={})]", 'the first document'],
  ...['"role":"tool"', '"role":"assistant"', '\\n\\n', 'most relevant first', '{"id": 1, "text": "'],
];
const STREAM_TOKENS = [
  ...['data: ', 'data:', '\n', '\r\n', '\r', '\n\n', ': ping\n', 'event: message\n', 'id: 1\n', 'data: [DONE]\n\n'],
  ...['{"choices":[{"index":0,"delta":{"content":"a"}}]}', '"usage":{"prompt_tokens":3,"completion_tokens":1}'],
  ...['"finish_reason":"stop"', '"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}}]', '"role"'],
  ...['"type":"content_block_delta"', '"type":"response.output_text.delta"', '"error":{"message":"m"}', '\u0000'],
];
// biome-ignore-start lint/suspicious/noTemplateCurlyInString: variables of the configuration.
const YAML_TOKENS = [
  ...[
    'upstream:\n  url: http://localhost:1\n',
    'engines:\n',
    '  - ',
    'server:\n',
    '${HOME}',
    '${A:-1}',
    '$${A}',
    '&a ',
    '*a',
  ],
  ...[
    '<<: *a',
    '!!binary ',
    '? ',
    ': ',
    '|',
    '>',
    '---\n',
    '...\n',
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    '#',
    '__proto__:',
    '\t',
  ],
  ...[
    'keys:\n',
    'limits:\n',
    'session:\n',
    'collections:\n',
    'kind: vllm',
    'arrange:\n',
    'recognise:\n',
    'constructor:',
  ],
];
// biome-ignore-end lint/suspicious/noTemplateCurlyInString: as above.

export const TARGETS = {
  json: { load: async () => (await import('./targets/requests.js')).json(), tokens: JSON_TOKENS, maxBytes: 1_024 },
  request: { load: async () => (await import('./targets/requests.js')).request(), tokens: REQUEST_TOKENS },
  recogniser: { load: async () => (await import('./targets/prompts.js')).recogniser(), tokens: PROMPT_TOKENS },
  found: {
    load: async () => (await import('./targets/prompts.js')).found(),
    tokens: [...REQUEST_TOKENS, ...PROMPT_TOKENS],
  },
  sse: { load: async () => (await import('./targets/answers.js')).sse(), tokens: STREAM_TOKENS, maxBytes: 512 },
  sniffer: {
    load: async () => (await import('./targets/answers.js')).sniffer(),
    tokens: [...STREAM_TOKENS, ...JSON_TOKENS],
    maxBytes: 2_048,
  },
  translation: {
    load: async () => (await import('./targets/answers.js')).translation(),
    tokens: [...REQUEST_TOKENS, ...STREAM_TOKENS],
  },
  'kv-events': { load: async () => (await import('./targets/kv-events.js')).kvEvents(), maxBytes: 1_024 },
  configuration: {
    load: async () => (await import('./targets/configuration.js')).configuration(),
    tokens: YAML_TOKENS,
    maxBytes: 1_024,
  },
  'engine-state': { load: async () => (await import('./targets/files.js')).engineState(), tokens: JSON_TOKENS },
  postings: { load: async () => (await import('./targets/files.js')).postings(), tokens: JSON_TOKENS },
  'redis-records': {
    load: async () => (await import('./targets/redis-records.js')).redisRecords(),
    tokens: [...JSON_TOKENS, '"at":0', '"add":"text-before"', '"turns"', '"edits"', '"documents"', '__proto__'],
  },
};
