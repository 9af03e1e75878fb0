import { describe, expect, it } from 'vitest';
import { isExactAnswer, readAlmanac, readQuestions } from '../src/demo/almanac.js';
import { readCorpus } from '../src/demo/corpus.js';
import { almanacWorkload, documentationWorkload } from '../src/demo/workload.js';

describe("the demo's documents", () => {
  it('come from fastify and undici, each passage under an id of its own', async () => {
    const passages = await readCorpus();
    const ids = new Set(passages.map(({ id }) => id));
    expect(ids.size).toBe(passages.length);
    for (const name of ['fastify.', 'undici.']) expect([...ids].some((id) => id.startsWith(name))).toBe(true);
    expect(passages.length).toBeGreaterThan(500);
  });

  it('are the same on every reading', async () => {
    expect(await readCorpus()).toEqual(await readCorpus());
  });
});

describe("the demo's questions", () => {
  it.each(['focused', 'broad'] as const)('%s: sixty, all different, each finding five passages', async (name) => {
    const bursts = await readQuestions(name);
    expect(new Set(bursts.flatMap(({ questions }) => questions)).size).toBe(60);
    const { requests } = await documentationWorkload(name, 60);
    for (const { documents } of requests) expect(new Set(documents.map(({ id }) => id)).size).toBe(5);
  });

  it('stop at the count that was asked for', async () => {
    expect((await documentationWorkload('focused', 7)).requests).toHaveLength(7);
    expect((await almanacWorkload(9)).requests).toHaveLength(9);
  });
});

describe('the almanac', () => {
  it('holds the answer of every question in the entry that it names', async () => {
    const { entries, questions } = await readAlmanac();
    const texts = new Map(entries.map(({ id, content }) => [id, content]));
    expect([entries.length, questions.length]).toEqual([96, 256]);
    for (const { entry, answer } of questions) expect(texts.get(entry)).toContain(answer);
  });

  it('grades word for word, forgiving white space at the ends and a full stop', () => {
    expect(isExactAnswer(' 41 kg', '41 kg')).toBe(true);
    expect(isExactAnswer('41 kg.\n', '41 kg')).toBe(true);
    expect(isExactAnswer('41 kg and more', '41 kg')).toBe(false);
    expect(isExactAnswer('', '41 kg')).toBe(false);
  });
});
