import { estimateTokens } from '@warmpath/core';
import { describe, expect, it } from 'vitest';
import { DATA_FORMATS, type ReadDataOptions, readData, simulate } from '../src/index.js';
import { dataFolder, jsonLines } from './data-folder.js';

const { write, path } = dataFolder();

const PASSAGES = [
  { _id: 'clock', title: 'The clock', text: 'The tower clock was built in Prague by a watchmaker.' },
  { _id: 'bridge', title: 'The bridge', text: 'The stone bridge crosses the river since 1402.' },
  { _id: 'river', text: 'The river floods the meadows in spring, the bridge stands.' },
];

async function beir(name: string, queries: readonly unknown[], qrels?: string): Promise<string> {
  await write(`${name}/corpus.jsonl`, jsonLines(...PASSAGES));
  await write(`${name}/queries.jsonl`, jsonLines(...queries));
  if (qrels !== undefined) await write(`${name}/qrels/test.tsv`, qrels);
  return path(name);
}

const ids = async (source: string, options?: ReadDataOptions) =>
  (await readData(source, options)).workload.requests.map(({ documents }) => documents.map(({ id }) => id));

describe('a BEIR folder', () => {
  const queries = [
    { _id: 'q1', text: 'Who built the clock?' },
    { _id: 'q2', text: 'How old is the bridge over the river?' },
  ];

  it('is searched with BM25, and says how much of the judged was found', async () => {
    const folder = await beir(
      'beir',
      queries,
      'query-id\tcorpus-id\tscore\nq1\tclock\t1\nq2\tbridge\t1\nq2\tclock\t2\nq1\triver\t0\n',
    );
    const data = await readData(folder);
    expect(data).toMatchObject({ format: 'beir', recall: 2 / 3 });
    expect(await ids(folder)).toEqual([['clock'], ['bridge', 'river']]);
    expect(await ids(folder, { topK: 1 })).toEqual([['clock'], ['bridge']]);
  });

  it('counts the tokens that core estimates for a rendered document, and for the question', async () => {
    const { workload } = await readData(await beir('tokens', queries));
    const [first] = workload.requests;
    const rendered = `<document id="clock" title="The clock">\n${PASSAGES[0]!.text}\n</document>\n`;
    expect(first!.documents[0]).toMatchObject({ tokens: estimateTokens(rendered), content: '' });
    expect(first!.question.tokens).toBe(estimateTokens('Who built the clock?'));
    const again = await readData(path('tokens'));
    expect(again.workload).toEqual(workload);
  });

  it('serves the contexts that its queries bring, in their order', async () => {
    const own = queries.map((query) => ({ ...query, metadata: { context: ['river', 'clock'] } }));
    const folder = await beir('contexts', own);
    expect((await readData(folder)).format).toBe('beir-contexts');
    expect(await ids(folder)).toEqual([
      ['river', 'clock'],
      ['river', 'clock'],
    ]);
    expect(await ids(folder, { topK: 1 })).toEqual([['river'], ['river']]);
    expect(await ids(folder, { format: 'beir', topK: 1 })).toEqual([['clock'], ['bridge']]);
  });

  it.each([
    ['a passage that is none', { context: ['clock', 'tower'] }, 'queries.jsonl line 1: metadata.context[1]', 'tower'],
    ['a passage twice', { context: ['clock', 'clock'] }, 'queries.jsonl line 1: metadata.context[1]', 'twice'],
    ['a context of numbers', { context: [1] }, 'queries.jsonl line 1: metadata.context[0]', 'a string'],
    ['metadata that are none', 'none', 'queries.jsonl line 1: metadata', 'an object'],
  ])('refuses %s', async (name, metadata, place, message) => {
    const folder = await beir(`wrong ${name}`, [{ ...queries[0], metadata }]);
    await expect(readData(folder)).rejects.toMatchObject({
      code: 'WARMPATH_INVALID_REQUEST',
      path: place,
      message: expect.stringContaining(message),
    });
  });

  it.each([
    ['corpus.jsonl', '{"_id": "a", "text": "x"}\n\n{"_id": "a", "text": "y"}', 'corpus.jsonl line 3: _id'],
    ['corpus.jsonl', '{"_id": "a"}', 'corpus.jsonl line 1: text'],
    ['corpus.jsonl', '{"_id": 3, "text": ""}', 'corpus.jsonl line 1: _id'],
    ['queries.jsonl', '{"_id": "a", "text": "x"}\nnot JSON', 'queries.jsonl line 2'],
    ['queries.jsonl', '[]', 'queries.jsonl line 1'],
    ['qrels/test.tsv', 'q1\tclock\t1\nq1\tclock\n', 'qrels/test.tsv line 2'],
  ])('names line and path in %s (%j)', async (file, content, place) => {
    const folder = await beir('named', queries, '');
    await write(`named/${file}`, content);
    await expect(readData(folder)).rejects.toMatchObject({ path: place });
  });
});

describe('MTRAG', () => {
  const say = (speaker: string, text: string) => ({ speaker, text, metadata: { ignored: true } });
  const task = {
    conversation_id: 'c1',
    Collection: 'town',
    input: [say('user', 'Who built the clock?'), say('agent', 'A watchmaker.'), say('user', 'Where?')],
    contexts: PASSAGES.map(({ _id, ...passage }) => ({ document_id: _id, ...passage })),
    targets: [say('agent', 'In Prague.')],
  };
  const other = { ...task, conversation_id: 'c2', Collection: 'village', contexts: [], targets: [] };

  it('asks every question of a conversation, searching the passages of its collection', async () => {
    const file = await write('mtrag/tasks.jsonl', jsonLines(task, other));
    const { format, workload } = await readData(path('mtrag'));
    expect(format).toBe('mtrag');
    expect(workload.name).toBe(file);
    expect(workload.requests.map(({ session, documents }) => [session, documents.map(({ id }) => id)])).toEqual([
      ['c1', ['clock']],
      // By the question before, too.
      ['c1', ['clock']],
      ['c2', []],
      ['c2', []],
    ]);
    expect(workload.requests.map(({ answer }) => answer!.tokens)).toEqual([
      estimateTokens('A watchmaker.'),
      estimateTokens('In Prague.'),
      estimateTokens('A watchmaker.'),
      0,
    ]);
    const prompts = simulate(workload, 'retrieval').map(({ promptTokens }) => promptTokens);
    // The second turn brings the first question and its answer along.
    expect(prompts[3]! - prompts[2]!).toBe(
      workload.requests[2]!.answer!.tokens + workload.requests[3]!.question.tokens,
    );
  });

  it('lets conversations go on at the same time', async () => {
    const file = await write('several.jsonl', jsonLines(task, other, { ...task, conversation_id: 'c3' }));
    const order = async (sessions: number) =>
      (await readData(file, { sessions })).workload.requests.map(({ session }) => session).join(' ');
    expect(await order(1)).toBe('c1 c1 c2 c2 c3 c3');
    expect(await order(2)).toBe('c1 c2 c1 c2 c3 c3');
    expect(await order(9)).toBe('c1 c2 c3 c1 c2 c3');
  });

  it('counts a conversation with several tasks once, at its longest', async () => {
    const short = { ...task, input: task.input.slice(0, 1) };
    const file = await write('twice.jsonl', jsonLines(short, task, short));
    expect((await readData(file)).workload.requests).toHaveLength(2);
  });

  it('serves the contexts of the tasks as they are, on request', async () => {
    const changed = { ...task, contexts: [{ document_id: 'clock', title: null, text: 'Another text.' }] };
    const file = await write('given.jsonl', jsonLines(task, changed));
    const given = await ids(file, { format: 'mtrag-contexts', topK: 2 });
    expect(given).toEqual([['clock', 'bridge'], [expect.stringMatching(/^clock~/)]]);
  });

  it.each([
    [{ input: [] }, 'line 1: input'],
    [{ input: [say('system', 'x')] }, 'line 1: input[0].speaker'],
    [{ contexts: [{ document_id: 'a' }] }, 'line 1: contexts[0].text'],
    [{ conversation_id: 7 }, 'line 1: conversation_id'],
  ])('refuses %j', async (change, place) => {
    const file = await write('wrong.jsonl', jsonLines({ ...task, ...change }));
    await expect(readData(file)).rejects.toMatchObject({ path: place });
  });
});

describe('NQ-open', () => {
  const records = [
    { question: 'who built the clock', answer: ['a watchmaker'] },
    { question: 'who crosses the bridge', answer: ['everybody', 'a watchmaker'] },
  ];

  it('searches its own records, or a corpus', async () => {
    const file = await write('nq.jsonl', jsonLines(...records));
    expect((await readData(file)).format).toBe('nq-open');
    expect(await ids(file)).toEqual([['record_0'], ['record_1']]);
    expect(await ids(file, { corpus: await beir('nq-corpus', []) })).toEqual([['clock'], ['bridge', 'river']]);
  });

  it('names line and path', async () => {
    const file = await write('nq-wrong.jsonl', '{"question": "a", "answer": ["b"]}\n{"question": "a", "answer": "b"}');
    await expect(readData(file)).rejects.toMatchObject({ path: 'line 2: answer' });
  });
});

describe('Mooncake', () => {
  const line = (timestamp: number, input_length: number, hash_ids: number[]) => ({
    timestamp,
    input_length,
    output_length: 10,
    hash_ids,
  });

  it('is a prefix of blocks, which caches find again', async () => {
    const file = await write('mooncake.jsonl', jsonLines(line(500, 1_000, [0, 1]), line(1_700, 1_500, [0, 1, 2])));
    const { format, workload } = await readData(file);
    expect(format).toBe('mooncake');
    expect(workload.requests.map(({ arrivalMs }) => arrivalMs)).toEqual([0, 1_200]);
    const served = simulate(workload, 'retrieval');
    expect(served.map(({ promptTokens }) => promptTokens)).toEqual([1_000, 1_500]);
    // The second block was filled by 488 tokens: 1,000 in all, 62 blocks of 16.
    expect(served.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 992]);
  });

  it.each([
    [line(0, 1_025, [0, 1]), 'line 1: input_length'],
    [line(0, 512, [0, 1]), 'line 1: input_length'],
    [line(0, 0, []), 'line 1: input_length'],
    [line(-1, 10, [0]), 'line 1: timestamp'],
  ])('refuses %j', async (wrong, place) => {
    const file = await write('mooncake-wrong.jsonl', jsonLines(wrong));
    await expect(readData(file)).rejects.toMatchObject({ path: place });
  });
});

describe('a trace', () => {
  it('is JSON on one line or many, with or without lengths', async () => {
    const trace = { jaccard: 0, requests: [[1, 'a'], [2]], tokens: { 1: 64, a: 512 } };
    for (const indent of [0, 2]) {
      const { format, workload } = await readData(await write('trace.json', JSON.stringify(trace, null, indent)));
      expect(format).toBe('trace');
      expect(workload.requests.map(({ documents }) => documents.map(({ tokens }) => tokens))).toEqual([
        [64, 512],
        [200],
      ]);
    }
  });
});

describe('readData', () => {
  it('reads a log', async () => {
    const file = await write(
      'log.jsonl',
      jsonLines({ documents: [{ id: 'a', tokens: 7 }, 'b', 'a'], session: 3, timestamp: 5, query_tokens: 9 }),
    );
    const { format, workload } = await readData(file);
    expect(format).toBe('log');
    expect(workload.requests).toEqual([
      {
        documents: [expect.objectContaining({ id: 'a', tokens: 7 }), expect.objectContaining({ id: 'b', tokens: 200 })],
        question: { key: 'question 1', tokens: 9 },
        session: '3',
        arrivalMs: 0,
      },
    ]);
  });

  it('says what it looked for where nothing fits', async () => {
    await write('empty/notes.txt', '');
    const blank = await write('blank.jsonl', '\n \n');
    const strange = await write('strange.jsonl', '{"a": 1}');
    const unknown = { code: 'WARMPATH_INVALID_REQUEST', path: 'data' };
    await expect(readData(path('empty'))).rejects.toMatchObject({
      ...unknown,
      message: expect.stringContaining('corpus.jsonl'),
    });
    await expect(readData(blank)).rejects.toMatchObject(unknown);
    await expect(readData(strange)).rejects.toMatchObject({
      ...unknown,
      message: expect.stringContaining(DATA_FORMATS.join(', ')),
    });
    await expect(readData(path('nothing'))).rejects.toMatchObject({ code: 'WARMPATH_USAGE' });
  });
});
