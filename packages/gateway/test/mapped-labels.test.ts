import type { ServerResponse } from 'node:http';
import { recognise } from '@warmpath/core';
import { answerHash, LabelMap } from '@warmpath/core/internal';
import { describe, expect, it } from 'vitest';
import { allowPrompts } from '../../../test/real-gateway.js';
import { pairs } from '../../../test/suite.js';
import { MappedAnswer } from '../src/answer/map-labels.js';
import { AnswerReader } from '../src/answer/read-answer.js';
import { errorShapeOf, UntouchedBody } from '../src/apis/prompt-apis.js';
import { explainRequest } from '../src/operate/explain/explain-request.js';
import { type ReceivedRequest, startStream } from './fake-engine.js';
import { errorOf, type Stand, send, stand, told } from './harness.js';
import { learnedKinds } from './learned-kinds.js';

const TOPICS = ['harbour', 'lantern', 'orchard', 'glacier', 'bridge', 'clock', 'ferry', 'market', 'quarry', 'mill'];
const PASSAGES = TOPICS.map(
  (topic, i) =>
    `The ${topic} of Velmora was built in ${1900 + i} by the people of the town, who still keep it and meet there every spring to look after what the winter broke.`,
);

/** How a program writes its documents, and how the model cites one of them. */
interface Form {
  readonly role: 'system' | 'user';
  write(passages: readonly string[], question: string): string;
  /** The label in front of a passage. */
  readonly label: (passage: string) => RegExp;
  cite(label: string): string;
}

const FORMS: Readonly<Record<string, Form>> = {
  'Open WebUI': {
    role: 'system',
    write: (passages) =>
      `### Task:\nRespond to the user query using the provided context, incorporating inline citations in the format [id] **only when the <source> tag includes an explicit id attribute** (e.g., <source id="1">).\n\n### Example of Citation:\n* "According to the study, the proposed method increases efficiency by 20% [1]."\n\n<context>\n${passages.map((text, i) => `<source id="${i + 1}" name="notes.md">${text}</source>`).join('\n')}\n</context>\n`,
    label: (passage) => new RegExp(`<source id="(\\d+)" name="notes.md">${passage}`),
    cite: (label) => `[${label}]`,
  },
  'LlamaIndex, citation engine': {
    role: 'user',
    write: (passages, question) =>
      `Please provide an answer based solely on the provided sources. When referencing information from a source, cite the appropriate source(s) using their corresponding numbers. Every answer should include at least one source citation. For example:\nSource 1:\nThe sky is red in the evening and blue in the morning.\nSource 2:\nWater is wet when the sky is red.\nQuery: When is water wet?\nAnswer: Water will be wet when the sky is red [2], which occurs in the evening [1].\nNow it's your turn. Below are several numbered sources of information:\n------\n${passages.map((text, i) => `Source ${i + 1}:\n${text}\n`).join('\n')}\n------\nQuery: ${question}\nAnswer: `,
    label: (passage) => new RegExp(`Source (\\d+):\\n${passage}`),
    cite: (label) => `[${label}]`,
  },
  'numbers in brackets': {
    role: 'user',
    write: (passages, question) =>
      `Answer from the sources and cite them by number, such as [1].\n\nSources:\n${passages.map((text, i) => `[${i + 1}] ${text}`).join('\n\n')}\n\nQuestion: ${question}`,
    label: (passage) => new RegExp(`\\[(\\d+)\\] ${passage}`),
    cite: (label) => `(source ${label})`,
  },
};

const questionOf = (topic: string) => `When was it built, the ${topic} I mean?`;
const topicIn = (prompt: string) => /built, the (\w+) I mean/.exec(prompt)![1]!;

/** The text of the question's prompt, in any API. */
function promptOf(body: string): string {
  const { system, instructions, messages, input, prompt } = JSON.parse(body) as Record<string, unknown>;
  const said = (value: unknown): string =>
    typeof value === 'string'
      ? value
      : Array.isArray(value)
        ? value.map(said).join('\n')
        : said((value as { content?: unknown; text?: unknown })?.content ?? (value as { text?: string })?.text ?? '');
  return [system, instructions, messages, input, prompt]
    .filter((each) => each !== undefined)
    .map(said)
    .join('\n');
}

interface Api {
  readonly path: string;
  body(role: Form['role'], text: string, question: string): object;
  json(answer: string): object;
  stream(pieces: readonly string[]): string;
  /** The text of a whole answer, and of a stream. */
  read(reply: string): string;
  readStream(reply: string): string;
}

const sse = (events: readonly object[], isNamed = true) =>
  events
    .map(
      (event) => `${isNamed ? `event: ${(event as { type: string }).type}\n` : ''}data: ${JSON.stringify(event)}\n\n`,
    )
    .join('');
const events = (stream: string) =>
  [...stream.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data!) as Record<string, never>);

const APIS: Readonly<Record<string, Api>> = {
  'chat completions': {
    path: '/v1/chat/completions',
    body: (role, text, question) => ({
      model: 'm',
      messages:
        role === 'user'
          ? [{ role, content: text }]
          : [
              { role, content: text },
              { role: 'user', content: question },
            ],
    }),
    json: (answer) => ({
      id: 'c',
      choices: [{ index: 0, message: { role: 'assistant', content: answer }, finish_reason: 'stop' }],
    }),
    stream: (pieces) => {
      const chunk = (choice: object) => ({
        id: 'c',
        object: 'chat.completion.chunk',
        created: 1,
        model: 'm',
        choices: [choice],
      });
      return `${sse(
        [
          chunk({ index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null }),
          ...pieces.map((content) => chunk({ index: 0, delta: { content }, finish_reason: null })),
          chunk({ index: 0, delta: {}, finish_reason: 'stop' }),
          { ...chunk({}), choices: [], usage: { prompt_tokens: 9, completion_tokens: 9 } },
        ],
        false,
      )}data: [DONE]\n\n`;
    },
    read: (reply) => (JSON.parse(reply) as { choices: { message: { content: string } }[] }).choices[0]!.message.content,
    readStream: (reply) =>
      events(reply)
        .map(({ choices }) => (choices as unknown as { delta: { content?: string } }[])[0]?.delta.content ?? '')
        .join(''),
  },
  completions: {
    path: '/v1/completions',
    body: (role, text, question) => ({ model: 'm', prompt: role === 'user' ? text : `${text}\n${question}` }),
    json: (answer) => ({ id: 'c', choices: [{ index: 0, text: answer, finish_reason: 'stop' }] }),
    stream: (pieces) =>
      `${sse(
        [
          ...pieces.map((text) => ({ id: 'c', choices: [{ index: 0, text, finish_reason: null }] })),
          { id: 'c', choices: [{ index: 0, text: '', finish_reason: 'stop' }] },
        ],
        false,
      )}data: [DONE]\n\n`,
    read: (reply) => (JSON.parse(reply) as { choices: { text: string }[] }).choices[0]!.text,
    readStream: (reply) =>
      events(reply)
        .map(({ choices }) => (choices as unknown as { text: string }[])[0]!.text)
        .join(''),
  },
  Messages: {
    path: '/v1/messages',
    body: (role, text, question) => ({
      model: 'm',
      max_tokens: 9,
      ...(role === 'system' && { system: text }),
      messages: [{ role: 'user', content: role === 'system' ? question : text }],
    }),
    json: (answer) => ({ id: 'm', type: 'message', role: 'assistant', content: [{ type: 'text', text: answer }] }),
    stream: (pieces) =>
      sse([
        { type: 'message_start', message: { id: 'm', type: 'message', role: 'assistant', content: [] } },
        { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
        ...pieces.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
        { type: 'content_block_stop', index: 0 },
        { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
        { type: 'message_stop' },
      ]),
    read: (reply) => (JSON.parse(reply) as { content: { text: string }[] }).content[0]!.text,
    readStream: (reply) =>
      events(reply)
        .map(({ delta }) => (delta as unknown as { text?: string } | undefined)?.text ?? '')
        .join(''),
  },
  Responses: {
    path: '/v1/responses',
    body: (role, text, question) => ({
      model: 'm',
      ...(role === 'system' && { instructions: text }),
      input: role === 'system' ? question : text,
    }),
    json: (answer) => ({
      id: 'r',
      output: [
        { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: answer, annotations: [] }] },
      ],
    }),
    stream: (pieces) => {
      const text = pieces.join('');
      const item = { type: 'message', role: 'assistant', content: [{ type: 'output_text', text }] };
      const at = { item_id: 'i', output_index: 0, content_index: 0 };
      return sse(
        [
          { type: 'response.created', response: { id: 'r', output: [] } },
          ...pieces.map((delta) => ({ type: 'response.output_text.delta', ...at, delta })),
          { type: 'response.output_text.done', ...at, text },
          { type: 'response.content_part.done', ...at, part: { type: 'output_text', text } },
          { type: 'response.output_item.done', output_index: 0, item },
          { type: 'response.completed', response: { id: 'r', output: [item] } },
        ].map((event, number) => ({ ...event, sequence_number: number })),
      );
    },
    read: (reply) => (JSON.parse(reply) as { output: { content: { text: string }[] }[] }).output[0]!.content[0]!.text,
    readStream: (reply) => {
      const all = events(reply) as unknown as { type: string; delta: string; text: string; sequence_number: number }[];
      expect(all.map(({ sequence_number: number }) => number)).toEqual(all.map((_, at) => at));
      const said = all.map(({ type, delta }) => (type.endsWith('text.delta') ? delta : '')).join('');
      expect(all.find(({ type }) => type === 'response.output_text.done')!.text).toBe(said);
      expect(JSON.stringify(all.at(-1))).toContain(JSON.stringify(said).slice(1, -1));
      return said;
    },
  },
};

/** An engine that cites the passage that is asked for, by the label that it reads. */
function citing(form: Form, isStreamed: boolean, speaks: 'all' | 'chat' = 'all') {
  return (response: ServerResponse, { path, body }: ReceivedRequest): void => {
    const api = Object.values(APIS).find((each) => each.path === path)!;
    const isKnown = speaks === 'all' || api === APIS['chat completions'];
    const prompt = promptOf(body);
    // The gateway asks which APIs an engine speaks.
    if (!isKnown || !prompt.includes('I mean')) {
      response.writeHead(isKnown ? 400 : 404, { 'content-type': 'application/json' }).end('{"detail":"Not Found"}');
      return;
    }
    const passage = PASSAGES[TOPICS.indexOf(topicIn(prompt))]!;
    const label = form.label(passage).exec(prompt)![1]!;
    const answer = `It was built in ${/in (\d+)/.exec(passage)![1]}, as ${form.cite(label)} says`;
    if (isStreamed) startStream(response).end(api.stream([...answer]));
    else {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(api.json(answer)));
    }
  };
}

/** Questions with four or five of ten passages each, in another order each time. */
const QUESTIONS = Array.from({ length: 30 }, (_, i) => {
  const ranks = Array.from({ length: 4 + (i % 2) }, (_each, at) => (i * 7 + at * 3) % TOPICS.length);
  return { ranks, asked: (i * 5) % ranks.length };
});

/** A gateway that has learned the prompts of a program, which a person has allowed. */
async function allowing(form: Form, api: Api, answer: Parameters<typeof stand>[0], labels: 'kept' | 'mapped') {
  const promptKinds = learnedKinds([
    'anonymous',
    (passages, number) => {
      const question = questionOf(`thing of number ${number}`);
      const text = form.write(passages, question);
      return api.path === '/v1/completions' && form.role === 'system'
        ? [{ role: 'user', text: `${text}\n${question}` }]
        : [{ role: form.role, text }];
    },
  ]);
  const gateway = await stand(answer, {}, { promptKinds });
  await allowPrompts(gateway.gateway.url, 1, {}, labels);
  return gateway;
}

/** Right citations of 30, and how often documents moved. */
async function rightCitations(
  gateway: Stand,
  { form, api, labels, isStreamed }: { form: Form; api: Api; labels: 'kept' | 'mapped'; isStreamed: boolean },
) {
  let right = 0;
  let moved = 0;
  const written = new Map<string, Set<string>>();
  for (const { ranks, asked } of QUESTIONS) {
    const question = questionOf(TOPICS[ranks[asked]!]!);
    const text = form.write(
      ranks.map((rank) => PASSAGES[rank]!),
      question,
    );
    const reply = await send(`${gateway.gateway.url}${api.path}`, {
      ...api.body(form.role, text, question),
      ...(isStreamed && { stream: true }),
    });
    const answer = isStreamed ? api.readStream(reply.text) : api.read(reply.text);
    if (answer.includes(`${form.cite(String(asked + 1))} says`)) right++;
    moved += Number(told(reply).moved);
    expect(told(reply).labels).toBe(labels === 'mapped' ? 'mapped' : undefined);
    const prompt = promptOf(gateway.engine.last.body);
    for (const rank of ranks) {
      const passage = PASSAGES[rank]!;
      const label = form.label(passage).exec(prompt)![1]!;
      written.set(passage, (written.get(passage) ?? new Set()).add(label));
    }
  }
  return { right, moved, labels: [...written.values()].map(({ size }) => size) };
}

const CASES = pairs(Object.entries(FORMS), Object.entries(APIS)).flatMap(([[written, form], [name, api]]) =>
  [false, true].map((isStreamed) => ({ written, form, name, api, isStreamed })),
);

describe('citations', () => {
  it.each(CASES)(
    'of $written in $name are right 30 of 30 times with labels that belong to documents, streamed: $isStreamed',
    async ({ form, api, isStreamed }) => {
      const gateway = await allowing(form, api, citing(form, isStreamed), 'mapped');
      const { right, moved, labels } = await rightCitations(gateway, { form, api, labels: 'mapped', isStreamed });
      expect(right).toBe(30);
      expect(moved).toBeGreaterThan(0);
      expect(labels).toEqual(labels.map(() => 1));
    },
  );

  it.each(
    pairs(Object.entries(FORMS), ['Messages', 'Responses']).map(([[written, form], name]) => ({ written, form, name })),
  )('of $written are right 30 of 30 times in $name that are translated for the engine', async ({ form, name }) => {
    for (const isStreamed of [false, true]) {
      const gateway = await allowing(form, APIS[name]!, citing(form, isStreamed, 'chat'), 'mapped');
      const { right } = await rightCitations(gateway, { form, api: APIS[name]!, labels: 'mapped', isStreamed });
      expect(right).toBe(30);
    }
  });

  it.each(Object.entries(FORMS))('of %s are right 30 of 30 times with labels that are kept', async (_, form) => {
    const api = APIS['chat completions']!;
    const gateway = await allowing(form, api, citing(form, false), 'kept');
    expect((await rightCitations(gateway, { form, api, labels: 'kept', isStreamed: false })).right).toBe(30);
  });
});

const DOCUMENTS = [0, 1, 2].map((rank) => PASSAGES[rank]!);
const LIST = `Sources:\n<warmpath-documents>\n${DOCUMENTS.map((text, i) => `[${i + 1}] ${text}`).join('\n\n')}\n</warmpath-documents>\n\nQuestion: Who?`;
const labelOf = (passage: string, body: string) => new RegExp(`\\[(\\d+)\\] ${passage}`).exec(body)![1]!;

/** Asks about three passages; `①` to `③` in the engine's answer stand for their labels in the prompt. */
async function answered(answer: string | readonly string[], messages: readonly object[] = [], fields: object = {}) {
  const gateway = await stand((response, { body }) => {
    const written = (part: string) =>
      part.replaceAll(/[①②③]/g, (sign) => labelOf(DOCUMENTS['①②③'.indexOf(sign)]!, body));
    if (typeof answer === 'string') {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(written(answer));
    } else {
      startStream(response);
      const [last] = answer.slice(-1);
      const begun = answer.slice(0, -1).map(written).join('');
      if (last === 'BREAK') response.write(begun, () => response.socket!.end());
      else response.end(begun + written(last!));
    }
  });
  const reply = await send(`${gateway.gateway.url}/v1/chat/completions`, {
    model: 'm',
    messages: [{ role: 'user', content: LIST }, ...messages],
    warmpath: { labels: 'mapped' },
    ...fields,
  });
  return { reply, sent: gateway.engine.last.body };
}

const chunk = (choices: object[], more: object = {}) => `data: ${JSON.stringify({ id: 'c', choices, ...more })}\n\n`;
const said = (content: string, index = 0) => chunk([{ index, delta: { content } }]);
const END = [
  chunk([{ index: 0, delta: {}, finish_reason: 'stop' }]),
  chunk([], { usage: { prompt_tokens: 1 } }),
  'data: [DONE]\n\n',
];

describe('an answer with mapped labels', () => {
  it('keeps every byte that is no label', async () => {
    const around = (text: string) =>
      `{ "id":"c" , "n":12345678901234567890,"choices":[ {"index":0,"message":{"content":"caf\\u00e9 \\/ ${text}","role":"assistant"},"logprobs":{"content":[{"token":"①"}]}}],"x":1.0}`;
    const { reply } = await answered(around('[①]'));
    const label = /"token":"(\d+)"/.exec(reply.text)![1]!;
    expect(reply.text).toBe(around('[1]').replace('①', label).replace('caf\\u00e9 \\/', 'café /'));
  });

  it('has the client’s labels in inputs of tools, reasoning, refusals and all choices', async () => {
    const message = (n: string) => ({
      role: 'assistant',
      content: `See [${n}].`,
      reasoning_content: `It is source ${n}.`,
      refusal: `Not from [${n}].`,
      tool_calls: [{ id: 'a', type: 'function', function: { name: 'fetch', arguments: `{"id": ${n}, "max": 12}` } }],
    });
    const body = (...numbers: string[]) =>
      JSON.stringify({ choices: numbers.map((n, index) => ({ index, message: message(n) })) });
    expect((await answered(body('①', '②'))).reply.text).toBe(body('1', '2'));
  });

  it.each(['gzip', 'br'])('is refused where the engine compresses it unasked: %s', async (coding) => {
    const gateway = await stand((response, { headers }) => {
      expect(headers['accept-encoding']).toBe('identity');
      response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': coding });
      response.end('bytes that the gateway does not read');
    });
    const ask = (labels: string) =>
      send(`${gateway.gateway.url}/v1/chat/completions`, {
        messages: [{ role: 'user', content: `${LIST} Labels are ${labels}.` }],
        warmpath: { labels },
      });
    const mapped = await ask('mapped');
    expect([mapped.status, errorOf(mapped).code]).toEqual([502, 'WARMPATH_UPSTREAM_ERROR']);
    expect(errorOf(mapped).message).toContain(`content-encoding: ${coding}`);
    expect((await ask('kept')).status).toBe(200);
  });

  it('is left alone where the engine reports an error', async () => {
    const gateway = await stand((response) => {
      response.writeHead(400, { 'content-type': 'application/json' }).end('{"error":"[417]"}');
    });
    const messages = [{ role: 'user', content: LIST }];
    const reply = await send(`${gateway.gateway.url}/v1/chat/completions`, {
      messages,
      warmpath: { labels: 'mapped' },
    });
    expect(reply.text).toBe('{"error":"[417]"}');
  });
});

describe('a stream with mapped labels', () => {
  const texts = (stream: string, index = 0) =>
    events(stream)
      .flatMap(({ choices }) => (choices ?? []) as unknown as { index: number; delta: { content?: string } }[])
      .map((choice) => (choice.index === index ? (choice.delta.content ?? '') : ''))
      .join('');

  it('brings what it held back before its last events, and these in their order', async () => {
    const { reply } = await answered([said('It is source ①'), ...END]);
    expect(texts(reply.text)).toBe('It is source 1');
    expect(reply.text.endsWith(END.join(''))).toBe(true);
    const cut = await answered([said('It is source 1'), ...END]);
    expect(texts(cut.reply.text)).toBe('It is source 1');
  });

  it('brings what it held back where the engine breaks off', async () => {
    const { reply } = await answered([said('It is source ①'), 'BREAK']);
    expect(texts(reply.text)).toBe('It is source 1');
    expect(reply.text).toContain('"error"');
  });

  it('keeps choices apart', async () => {
    const { reply } = await answered([
      said('[', 0),
      said('source ', 1),
      said('①', 0),
      said('②', 1),
      said(']', 0),
      ...END,
    ]);
    expect(texts(reply.text, 0)).toBe('[1]');
    expect(texts(reply.text, 1)).toBe('source 2');
  });

  it('passes on events as they came that hold no label', async () => {
    const stream = [
      ': comment\r\n\r\n',
      'data:{"choices": [{"index":0,"delta":{"content":"caf\\u00e9 [12]"}}] , "n":1.0}\r\n\r\n',
      'event: ping\ndata: {"type": "ping"}\n\n',
      'data: no JSON\n\n',
      ...END,
    ];
    expect((await answered(stream)).reply.text).toBe(stream.join(''));
  });

  it('maps the input of a tool call that comes in pieces, and repeats no name', async () => {
    const call = (part: object, more: object = {}) =>
      chunk([{ index: 0, delta: { tool_calls: [{ index: 0, ...more, function: part }] } }]);
    const ends = chunk([{ index: 0, delta: {}, finish_reason: 'tool_calls' }]);
    const { reply } = await answered([
      call({ name: 'fetch', arguments: '' }, { id: 'a' }),
      call({ arguments: '{"source_id": "' }),
      call({ arguments: '①' }),
      ends,
    ]);
    const calls = events(reply.text)
      .flatMap(({ choices }) => choices as unknown as { delta: { tool_calls?: { function: object }[] } }[])
      .flatMap(({ delta }) => delta.tool_calls ?? [])
      .map((each) => each.function as { name?: string; arguments: string });
    expect(calls.map(({ arguments: input }) => input).join('')).toBe('{"source_id": "1');
    expect(calls.flatMap(({ name }) => name ?? [])).toEqual(['fetch']);
  });
});

describe('a conversation with mapped labels', () => {
  const ANSWER = JSON.stringify({ choices: [{ index: 0, message: { role: 'assistant', content: 'It is [②].' } }] });

  it('sends earlier answers, inputs of calls and questions with the labels of the prompt', async () => {
    const { sent } = await answered(ANSWER, [
      {
        role: 'assistant',
        content: 'It is [2].',
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'fetch', arguments: '{"source_id": 2, "max": 3}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', content: 'Not [2].' },
      { role: 'user', content: 'And what does [3] say?' },
    ]);
    const { messages } = JSON.parse(sent) as {
      messages: { content: string; tool_calls: { function: { arguments: string } }[] }[];
    };
    const [, two, three] = DOCUMENTS.map((passage) => labelOf(passage, sent));
    expect(messages[1]!.content).toBe(`It is [${two}].`);
    expect(messages[1]!.tool_calls[0]!.function.arguments).toBe(`{"source_id": ${two}, "max": 3}`);
    expect(messages[2]!.content).toBe('Not [2].');
    expect(messages[3]!.content).toBe(`And what does [${three}] say?`);
  });

  it('sends the same bytes for its earlier messages, behind any gateway, whatever later turns ask for', async () => {
    const turns = [
      { role: 'assistant', content: 'It is [2].' },
      { role: 'user', content: 'Why?' },
    ];
    const first = await answered(ANSWER);
    const elsewhere = await answered(ANSWER, turns);
    const contents = (body: string) => (JSON.parse(body) as { messages: { content: string }[] }).messages;
    expect(contents(elsewhere.sent)[0]).toEqual(contents(first.sent)[0]);

    const gateway = await stand((response, { body }) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(ANSWER.replace('②', labelOf(DOCUMENTS[1]!, body)));
    });
    const ask = (messages: object[], labels: string) =>
      send(`${gateway.gateway.url}/v1/chat/completions`, { model: 'm', messages, warmpath: { labels } });
    await ask([{ role: 'user', content: LIST }], 'mapped');
    const before = contents(gateway.engine.last.body)[0];
    const reply = await ask([{ role: 'user', content: LIST }, ...turns], 'kept');
    expect(contents(gateway.engine.last.body)[0]).toEqual(before);
    expect(reply.text).toContain('It is [2].');
    expect(told(reply).labels).toBe('mapped');
  });

  it('says so in the header where a later turn brings documents of its own', async () => {
    const gateway = await stand((response, { body }) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(ANSWER.replace('②', labelOf(DOCUMENTS[1]!, body)));
    });
    const ask = (messages: object[], fields: object) =>
      send(`${gateway.gateway.url}/v1/chat/completions`, { model: 'm', messages, ...fields });
    await ask([{ role: 'user', content: LIST }], { warmpath: { labels: 'mapped' } });
    const turns = [
      { role: 'assistant', content: 'It is [2].' },
      { role: 'user', content: 'Why?' },
    ];
    const reply = await ask([{ role: 'user', content: LIST }, ...turns], {
      documents: [{ id: 'own', content: 'Why not.' }],
    });
    expect(reply.text).toContain('It is [2].');
    expect(told(reply)['labels']).toBe('mapped');
  });

  it('keeps the labels of documents that must not move', async () => {
    const unmarked = LIST.replaceAll(/<.?warmpath-documents>\n?/g, '');
    const { reply, sent } = await answered('{"choices":[]}', [], {
      messages: [{ role: 'user', content: unmarked }],
      warmpath: { labels: 'mapped', deduplicate: true },
    });
    expect(sent).toContain(JSON.stringify(unmarked));
    expect(told(reply).labels).toBeUndefined();
  });

  it('keeps the labels of several prompts in one request, which may count alike', async () => {
    const gateway = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":[]}');
    }, {});
    const prompt = [LIST, LIST.replaceAll('of Velmora', 'of Orsin')];
    const body = { model: 'm', prompt, warmpath: { labels: 'mapped' } };
    await send(`${gateway.gateway.url}/v1/completions`, body);
    expect(JSON.parse(gateway.engine.last.body)).toMatchObject({ prompt });
  });

  it('is explained as it is sent', async () => {
    const body = { model: 'm', messages: [{ role: 'user', content: LIST }], warmpath: { labels: 'mapped' } };
    const { blocks } = explainRequest(JSON.stringify(body), {});
    expect(blocks.map(({ labels }) => labels)).toEqual(['mapped']);
    const kept = explainRequest(JSON.stringify({ ...body, warmpath: {} }), {});
    expect(kept.blocks.map(({ labels }) => labels)).toEqual(['kept']);
  });

  it.each(['text/event-stream', 'application/json', 'text/plain', ''])(
    'is mapped back under the content type `%s`',
    (type) => {
      const texts = [{ role: 'user', text: LIST }] as const;
      const blocks = recognise(texts, { mode: 'form' });
      const map = LabelMap.of(texts, blocks);
      const content = `It is [${map.labelOf(blocks[0]!, 1)}].`;
      const event = `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, finish_reason: 'stop' }] })}\n\n`;
      for (const sent of [event, JSON.stringify({ choices: [{ index: 0, message: { content } }] })]) {
        const answer = new MappedAnswer(new UntouchedBody(errorShapeOf('/v1/chat/completions')), map);
        answer.head({ status: 200, headers: { 'content-type': type, 'content-length': String(sent.length) } });
        const parts = ['\n', sent.slice(0, 9), sent.slice(9)].map((part) => answer.data(Buffer.from(part)).toString());
        expect(parts.join('') + answer.end().rest).toContain('It is [2].');
      }
    },
  );

  it('is known by the answer that its client got', () => {
    const texts = [{ role: 'user', text: LIST }] as const;
    const blocks = recognise(texts, { mode: 'form' });
    const map = LabelMap.of(texts, blocks);
    const reader = new AnswerReader(map);
    reader.read({ kind: 'text', choice: 0, text: `It is [${map.labelOf(blocks[0]!, 1)}].` });
    expect(reader.hashes()).toEqual([answerHash({ content: 'It is [2].' })]);
  });

  it('keeps labels that were sent, where only a later turn asks for others', async () => {
    const gateway = await stand((response) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end(ANSWER.replace('②', '2'));
    });
    const ask = (messages: object[], labels: string) =>
      send(`${gateway.gateway.url}/v1/chat/completions`, { model: 'm', messages, warmpath: { labels } });
    await ask([{ role: 'user', content: LIST }], 'kept');
    await ask(
      [
        { role: 'user', content: LIST },
        { role: 'assistant', content: 'It is [2].' },
        { role: 'user', content: 'Why?' },
      ],
      'mapped',
    );
    expect(gateway.engine.last.body).toContain(JSON.stringify(LIST));
  });
});
