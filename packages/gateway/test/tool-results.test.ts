import type { PromptText } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import { allowPrompts } from '../../../test/real-gateway.js';
import { isFull, pairs } from '../../../test/suite.js';
import { startStream } from './fake-engine.js';
import { send, stand } from './harness.js';
import { learnedKinds } from './learned-kinds.js';

interface Result {
  readonly id: number | string;
  readonly title: string;
  readonly text: string;
}

/** How a tool writes what it found, as the parts of its result. `id` reads the id that stands at a text. */
interface Form {
  write(results: readonly Result[]): string | readonly string[];
  readonly id: (text: string) => RegExp;
}

const each =
  (write: (result: Result) => string, between = '\n') =>
  (results: readonly Result[]) =>
    results.map(write).join(between);
const json = (results: readonly Result[], space?: number) => JSON.stringify(results, undefined, space);

const FORMS: Readonly<Record<string, Form>> = {
  'a JSON array': {
    write: (results) => json(results),
    id: (text) => new RegExp(`"id":"?([\\w-]+)"?,"title":"[^"]*","text":"${text}`),
  },
  'a JSON object over several lines': {
    write: (results) => JSON.stringify({ count: results.length, results }, undefined, 2),
    id: (text) => new RegExp(`"id": "?([\\w-]+)"?,\\s+"title": "[^"]*",\\s+"text": "${text}`),
  },
  'JSON lines': {
    write: each((result) => JSON.stringify(result)),
    id: (text) => new RegExp(`"id":"?([\\w-]+)"?,"title":"[^"]*","text":"${text}`),
  },
  'a numbered list': {
    write: each(({ id, text }) => `${id}. ${text}`),
    id: (text) => new RegExp(`([\\w-]+)\\. ${text}`),
  },
  'numbers in brackets': {
    write: each(({ id, text }) => `[${id}] ${text}`, '\n\n'),
    id: (text) => new RegExp(`\\[([\\w-]+)\\] ${text}`),
  },
  'titles with ids behind': {
    write: each(({ id, title, text }) => `- ${title} (id: ${id})\n  ${text}`),
    id: (text) => new RegExp(`\\(id: ([\\w-]+)\\)\\n  ${text}`),
  },
  'numbered titles with ids behind': {
    write: (results) => results.map(({ id, title, text }, i) => `${i + 1}. ${title} (id: ${id})\n${text}`).join('\n'),
    id: (text) => new RegExp(`\\(id: ([\\w-]+)\\)\\n${text}`),
  },
  'tags with an attribute': {
    write: each(({ id, text }) => `<result id="${id}">${text}</result>`),
    id: (text) => new RegExp(`<result id="([\\w-]+)">${text}`),
  },
  'tags with a tag inside': {
    write: each(({ id, title, text }) => `<result><id>${id}</id><title>${title}</title><text>${text}</text></result>`),
    id: (text) => new RegExp(`<id>([\\w-]+)</id><title>[^<]*</title><text>${text}`),
  },
  'a Markdown table': {
    write: (results) =>
      `| id | title | text |\n| --- | --- | --- |\n${each(({ id, title, text }) => `| ${id} | ${title} | ${text} |`)(results)}`,
    id: (text) => new RegExp(`\\| ([\\w-]+) \\| [^|]* \\| ${text}`),
  },
  headings: {
    write: each(({ id, text }) => `## Result ${id}\n${text}`, '\n\n'),
    id: (text) => new RegExp(`## Result ([\\w-]+)\\n${text}`),
  },
  'words and numbers': {
    write: each(({ id, text }) => `Result ${id}:\n${text}`, '\n\n'),
    id: (text) => new RegExp(`Result ([\\w-]+):\\n${text}`),
  },
  fields: {
    write: each(({ id, title, text }) => `id: ${id}\ntitle: ${title}\ncontent: ${text}`, '\n\n'),
    id: (text) => new RegExp(`id: ([\\w-]+)\\ntitle: [^\\n]*\\ncontent: ${text}`),
  },
  YAML: {
    write: each(({ id, title, text }) => `- id: ${id}\n  title: ${title}\n  text: ${text}`),
    id: (text) => new RegExp(`- id: ([\\w-]+)\\n  title: [^\\n]*\\n  text: ${text}`),
  },
  'lines of CSV': {
    write: (results) => `id,title,text\n${each(({ id, title, text }) => `${id},"${title}","${text}"`)(results)}`,
    id: (text) => new RegExp(`([\\w-]+),"[^"]*","${text}`),
  },
  'content blocks of MCP': {
    write: (results) => results.map(({ id, title, text }) => `id: ${id}\ntitle: ${title}\n${text}`),
    id: (text) => new RegExp(`id: ([\\w-]+)\\ntitle: [^\\n]*\\n${text}`),
  },
};

interface Api {
  readonly path: string;
  /** The request behind the tool's result, and behind those of further calls with this input. */
  body(question: string, result: string | readonly string[], inputs?: readonly object[]): object;
  /** The texts that a gateway learns from. */
  texts(question: string, result: string | readonly string[]): readonly PromptText[];
  /** An answer that calls `fetch`, and its input where a client reads it. */
  calls(input: string): object;
  readonly stream: (input: string) => readonly object[];
  input(answer: Record<string, never>): string;
  streamed(events: readonly Record<string, never>[]): string;
  /** Inputs of calls in a request. */
  asked(body: Record<string, never>): readonly string[];
}

const parts = (result: string | readonly string[]) => (typeof result === 'string' ? [result] : result);
const asTool = (question: string, result: string | readonly string[]): PromptText[] => [
  { role: 'user', text: question },
  ...parts(result).map((text) => ({ role: 'tool' as const, text })),
];
/** Where a field of any object in a value is called so, its values in order. */
function valuesOf(value: unknown, field: string): unknown[] {
  if (Array.isArray(value)) return value.flatMap((one) => valuesOf(one, field));
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, one]) => (key === field ? [one] : valuesOf(one, field)));
}

const APIS: Readonly<Record<string, Api>> = {
  'chat completions': {
    path: '/v1/chat/completions',
    body: (question, result, inputs = []) => {
      const call = (name: string, input: object, id: string) => ({
        role: 'assistant',
        content: null,
        tool_calls: [{ id, type: 'function', function: { name, arguments: JSON.stringify(input) } }],
      });
      const content = typeof result === 'string' ? result : result.map((text) => ({ type: 'text', text }));
      return {
        model: 'm',
        messages: [
          { role: 'user', content: question },
          call('search', { query: 'built' }, 'c0'),
          { role: 'tool', tool_call_id: 'c0', content },
          ...inputs.flatMap((input, i) => [
            call('fetch', input, `f${i}`),
            { role: 'tool', tool_call_id: `f${i}`, content: 'All of it.' },
          ]),
        ],
      };
    },
    texts: asTool,
    calls: (input) => ({
      choices: [
        {
          index: 0,
          message: {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'f', type: 'function', function: { name: 'fetch', arguments: input } }],
          },
          finish_reason: 'tool_calls',
        },
      ],
    }),
    stream: (input) => [
      {
        choices: [
          { index: 0, delta: { tool_calls: [{ index: 0, id: 'f', function: { name: 'fetch', arguments: '' } }] } },
        ],
      },
      ...[...input].map((piece) => ({
        choices: [{ index: 0, delta: { tool_calls: [{ index: 0, function: { arguments: piece } }] } }],
      })),
      { choices: [{ index: 0, delta: {}, finish_reason: 'tool_calls' }] },
    ],
    input: (answer) => valuesOf(answer, 'arguments').join(''),
    streamed: (events) => valuesOf(events, 'arguments').join(''),
    asked: (body) => valuesOf(body, 'arguments').slice(1) as string[],
  },
  Messages: {
    path: '/v1/messages',
    body: (question, result, inputs = []) => ({
      model: 'm',
      max_tokens: 9,
      messages: [
        { role: 'user', content: question },
        { role: 'assistant', content: [{ type: 'tool_use', id: 'c0', name: 'search', input: { query: 'built' } }] },
        {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: 'c0',
              content: typeof result === 'string' ? result : result.map((text) => ({ type: 'text', text })),
            },
          ],
        },
        ...inputs.flatMap((input, i) => [
          { role: 'assistant', content: [{ type: 'tool_use', id: `f${i}`, name: 'fetch', input }] },
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: `f${i}`, content: 'All of it.' }] },
        ]),
      ],
    }),
    texts: asTool,
    calls: (input) => ({
      type: 'message',
      role: 'assistant',
      content: [{ type: 'tool_use', id: 'f', name: 'fetch', input: JSON.parse(input) }],
    }),
    stream: (input) => [
      { type: 'message_start', message: { type: 'message', role: 'assistant', content: [] } },
      { type: 'content_block_start', index: 0, content_block: { type: 'tool_use', id: 'f', name: 'fetch', input: {} } },
      ...[...input].map((piece) => ({
        type: 'content_block_delta',
        index: 0,
        delta: { type: 'input_json_delta', partial_json: piece },
      })),
      { type: 'content_block_stop', index: 0 },
      { type: 'message_stop' },
    ],
    input: (answer) =>
      valuesOf(answer, 'input')
        .map((input) => JSON.stringify(input))
        .join(''),
    streamed: (events) => valuesOf(events, 'partial_json').join(''),
    asked: (body) =>
      valuesOf(body, 'input')
        .slice(1)
        .map((input) => JSON.stringify(input)),
  },
  Responses: {
    path: '/v1/responses',
    body: (question, result, inputs = []) => ({
      model: 'm',
      input: [
        { role: 'user', content: question },
        { type: 'function_call', call_id: 'c0', name: 'search', arguments: '{"query":"built"}' },
        {
          type: 'function_call_output',
          call_id: 'c0',
          output: typeof result === 'string' ? result : result.map((text) => ({ type: 'input_text', text })),
        },
        ...inputs.flatMap((input, i) => [
          { type: 'function_call', call_id: `f${i}`, name: 'fetch', arguments: JSON.stringify(input) },
          { type: 'function_call_output', call_id: `f${i}`, output: 'All of it.' },
        ]),
      ],
    }),
    texts: asTool,
    calls: (input) => ({ output: [{ type: 'function_call', call_id: 'f', name: 'fetch', arguments: input }] }),
    stream: (input) => {
      const item = { type: 'function_call', call_id: 'f', name: 'fetch', arguments: input };
      const at = { item_id: 'i', output_index: 0 };
      return [
        { type: 'response.created', response: { output: [] } },
        ...[...input].map((delta) => ({ type: 'response.function_call_arguments.delta', ...at, delta })),
        { type: 'response.function_call_arguments.done', ...at, arguments: input },
        { type: 'response.output_item.done', output_index: 0, item },
        { type: 'response.completed', response: { output: [item] } },
      ];
    },
    input: (answer) => valuesOf(answer, 'arguments').join(''),
    streamed: (events) => {
      const said = valuesOf(events, 'delta').join('');
      expect(valuesOf(events, 'arguments')).toEqual([said, said, said]);
      return said;
    },
    asked: (body) => valuesOf(body, 'arguments').slice(1) as string[],
  },
  completions: {
    path: '/v1/completions',
    body: (question, result, inputs = []) => ({
      model: 'm',
      prompt: `${transcript(question, result)}${inputs.map((input) => `\nAction: fetch\nAction Input: ${JSON.stringify(input)}\nObservation: All of it.`).join('')}\nThought:`,
    }),
    texts: (question, result) => [{ role: 'user', text: `${transcript(question, result)}\nThought:` }],
    calls: (input) => ({ choices: [{ index: 0, text: ` more.\nAction: fetch\nAction Input: ${input}` }] }),
    stream: (input) =>
      [...` more.\nAction: fetch\nAction Input: ${input}`].map((text) => ({ choices: [{ index: 0, text }] })),
    input: (answer) => valuesOf(answer, 'text').join('').split('Action Input: ')[1]!,
    streamed: (events) => valuesOf(events, 'text').join('').split('Action Input: ')[1]!,
    asked: (body) =>
      [...(body as unknown as { prompt: string }).prompt.matchAll(/Action Input: (\{"id.*)/g)].map(
        ([, input]) => input!,
      ),
  },
};

function transcript(question: string, result: string | readonly string[]): string {
  return `Question: ${question}\nThought: I search.\nAction: search\nAction Input: {"query":"built"}\nObservation: ${parts(result).join('\n')}`;
}

const LEAD = 'These were found in the archive of the town:\n';
const END = '\nCall fetch with an id to read all of a result.';
/** The result of a tool with words of its own around the list, or without. */
function resultOf(form: Form, results: readonly Result[], isBare: boolean): string | readonly string[] {
  const written = form.write(results);
  return isBare || typeof written !== 'string' ? written : `${LEAD}${written}${END}`;
}

type Ids = 'places' | 'places from 0' | 'names';
function resultsOf(passages: readonly string[], ids: Ids): Result[] {
  return passages.map((text, i) => {
    const title = text.split(' ').slice(0, 2).join(' ');
    const id = ids === 'names' ? `doc-${title.toLowerCase().replace(' ', '-')}` : ids === 'places' ? i + 1 : i;
    return { id, title, text };
  });
}

const WORDS = 'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery granary ferry'.split(' ');
const PASSAGES = WORDS.map((word, i) => `The ${word} is what the town has built, and its keeper has the key ${i}.`);
const QUESTIONS = Array.from({ length: 10 }, (_, n) => {
  const ranks = Array.from({ length: 4 }, (_each, at) => (n * 7 + at * 5) % PASSAGES.length);
  return { number: n, passages: ranks.map((rank) => PASSAGES[rank]!), asked: n % 4 };
});
const questionOf = (number: number, passage: string) =>
  `Who keeps it, case ${number}x? About: ${passage.split(' ')[1]}.`;

const eventsOf = (stream: string) =>
  [...stream.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data!) as Record<string, never>);
/** All texts of a request as the model reads them. */
const textOf = (body: string) =>
  ['content', 'text', 'output', 'prompt'].flatMap((field) => strings(valuesOf(JSON.parse(body), field))).join('\n');
const strings = (values: readonly unknown[]): string[] =>
  values.flatMap((value) =>
    typeof value === 'string'
      ? [value]
      : valuesOf(value, 'text')
          .concat(valuesOf(value, 'content'))
          .flatMap((one) => strings([one])),
  );

/** An engine that fetches the passage that the question is about, by the id that stands there. */
function fetching(api: Api, form: Form, isStreamed: boolean, inputs: string[]): Parameters<typeof stand>[0] {
  return (response, { path, body }) => {
    // The gateway asks which APIs an engine speaks.
    if (path !== api.path || !body.includes('About')) {
      response
        .writeHead(path === api.path ? 400 : 404, { 'content-type': 'application/json' })
        .end('{"detail":"Not Found"}');
      return;
    }
    const prompt = textOf(body);
    const word = /About: (\w+)/.exec(prompt)![1]!;
    const id = form.id(PASSAGES[WORDS.indexOf(word)]!).exec(prompt)![1]!;
    const input = `{"id":${/^\d+$/.test(id) ? id : `"${id}"`}}`;
    inputs.push(input);
    if (isStreamed) {
      const events = api.stream(input).map((event) => `data: ${JSON.stringify(event)}\n\n`);
      startStream(response).end(events.join(''));
    } else {
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(api.calls(input)));
    }
  };
}

function learned(api: Api, form: Form, ids: Ids, isBare: boolean) {
  return learnedKinds([
    'anonymous',
    (passages, number) =>
      api.texts(`Who keeps it, case ${number}? About: x.`, resultOf(form, resultsOf(passages, ids), isBare)),
  ]);
}

const IDS: readonly Ids[] = ['places', 'places from 0', 'names'];
/** Every way to count in one API: the others differ in nothing that has to do with it. */
const IDS_OF = (name: string) => (name === 'chat completions' ? IDS : IDS.slice(0, 1));
const CASES = pairs(Object.entries(APIS), Object.entries(FORMS)).map(([[name, api], [written, form]], i) => ({
  name,
  api,
  written,
  form,
  counting: isFull ? IDS_OF(name) : [IDS[i % IDS.length]!],
  questions: isFull ? QUESTIONS : QUESTIONS.slice(0, 4),
}));

describe.each(CASES)('results of a tool in $name, as $written', ({ name, api, form, counting, questions }) => {
  it('go to the engine as they came, unless a person allows more', async () => {
    for (const ids of counting) {
      for (const isBare of [false, true]) {
        const promptKinds = learned(api, form, ids, isBare);
        for (const recognise of ['ask', 'auto'] as const) {
          const inputs: string[] = [];
          const { engine, gateway } = await stand(fetching(api, form, false, inputs), { recognise }, { promptKinds });
          for (const { number, passages, asked } of QUESTIONS.slice(0, 3)) {
            const result = resultOf(form, resultsOf(passages, ids), isBare);
            const body = api.body(questionOf(number, passages[asked]!), result);
            const { text } = await send(`${gateway.url}${api.path}`, body);
            expect(engine.last.body).toBe(JSON.stringify(body));
            expect(text).toBe(JSON.stringify(api.calls(inputs.at(-1)!)));
          }
        }
      }
    }
  });

  it('once allowed, lead the next call to the right one', async () => {
    for (const ids of counting) {
      const promptKinds = learned(api, form, ids, false);
      for (const isStreamed of [false, true]) {
        const inputs: string[] = [];
        const { engine, gateway } = await stand(fetching(api, form, isStreamed, inputs), {}, { promptKinds });
        await allowPrompts(gateway.url, 0, {}, 'mapped');
        for (const { number, passages, asked } of questions) {
          const question = questionOf(number, passages[asked]!);
          const results = resultsOf(passages, ids);
          const result = resultOf(form, results, false);
          const body = api.body(question, result);
          const { text } = await send(`${gateway.url}${api.path}`, { ...body, ...(isStreamed && { stream: true }) });
          const input = isStreamed ? api.streamed(eventsOf(text)) : api.input(JSON.parse(text));
          expect(JSON.parse(input)).toEqual({ id: results[asked]!.id });
          const first = inputs.at(-1)!;
          await send(`${gateway.url}${api.path}`, api.body(question, result, [JSON.parse(input) as object]));
          const [again] = api.asked(JSON.parse(engine.last.body));
          // In a transcript, the number is in doubt and may stay: it then names none of the documents.
          if (name === 'completions') expect([first, input]).toContain(again);
          else expect(again).toBe(first);
        }
      }
    }
  });
});
