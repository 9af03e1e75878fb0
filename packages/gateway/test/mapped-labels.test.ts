import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { type ReceivedRequest, startStream } from './fake-engine.js';
import { type Stand, type StandConfig, send, stand, told } from './harness.js';

const TOPICS = ['harbour', 'lantern', 'orchard', 'glacier', 'bridge', 'clock', 'ferry', 'market', 'quarry', 'mill'];
const PASSAGES = TOPICS.map(
  (topic, i) =>
    `The ${topic} of Velmora was built in ${1900 + i} by the people of the town, who still keep it and meet there every spring to look after what the winter broke.`,
);
const CONSERVATIVE: StandConfig = { recognise: { mode: 'conservative' } };

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
      warmpath: { labels },
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

describe.each(Object.entries(FORMS))('citations of %s', (_, form) => {
  describe.each(Object.entries(APIS))('in %s', (__, api) => {
    it.each([
      ['an answer', false],
      ['a stream, character by character', true],
    ])('are right 30 of 30 times with labels that belong to documents: %s', async (___, isStreamed) => {
      const gateway = await stand(citing(form, isStreamed), CONSERVATIVE);
      const { right, moved, labels } = await rightCitations(gateway, { form, api, labels: 'mapped', isStreamed });
      expect(right).toBe(30);
      expect(moved).toBeGreaterThan(0);
      expect(labels).toEqual(labels.map(() => 1));
    });
  });

  it.each(['Messages', 'Responses'])(
    'are right 30 of 30 times in %s that are translated for the engine',
    async (name) => {
      for (const isStreamed of [false, true]) {
        const gateway = await stand(citing(form, isStreamed, 'chat'), CONSERVATIVE);
        const { right } = await rightCitations(gateway, { form, api: APIS[name]!, labels: 'mapped', isStreamed });
        expect(right).toBe(30);
      }
    },
  );

  it('are right 30 of 30 times with labels that are kept', async () => {
    const gateway = await stand(citing(form, false), CONSERVATIVE);
    const api = APIS['chat completions']!;
    expect((await rightCitations(gateway, { form, api, labels: 'kept', isStreamed: false })).right).toBe(30);
  });
});
