import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Collection, Collections, type Query, type ScoredDocument, type SearchOptions } from '../src/index.js';
import { RefinedRetriever } from '../src/refined-retriever.js';

const { signal } = new AbortController();
const SECTIONS = ['Anchors hold ships.', 'Buoys mark channels.', 'Cranes lift loads.', 'Docks keep water out.'];
const SHARED = 'The licence of this page is free for everyone.';

describe('a search of a collection', () => {
  let folder: string;
  let collections: Collections;
  let collection: Collection;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'warmpath-refined-'));
    collections = new Collections(folder);
    collection = await collections.getOrMake('default', 'kb');
    const passages = SECTIONS.map((content) => ({ content, tokens: 5 }));
    const cut = (id: string, list: { content: string; tokens: number }[]) => ({ id, bytes: 100, passages: list });
    const footer = { content: SHARED, tokens: 10 };
    await collection.putCut([
      cut('harbour', passages),
      cut('first', [footer]),
      cut('second', [{ content: 'Another text.', tokens: 3 }, footer]),
    ]);
  });
  afterAll(async () => {
    await collections.close();
    await rm(folder, { recursive: true });
  });
  const find = async (
    query: string | Query,
    options: Partial<SearchOptions> = {},
  ): Promise<readonly ScoredDocument[]> => {
    const asked = typeof query === 'string' ? { text: query } : query;
    for await (const { candidates } of collection.retriever.search(asked, { k: 10, signal, ...options })) {
      return candidates;
    }
    return [];
  };
  const texts = (found: readonly ScoredDocument[]) => found.map(({ content }) => content);

  it('cites all documents that a passage stands in', async () => {
    const [passage] = await find('licence');
    expect(passage!.metadata).toEqual({ source: 'first', sources: ['first', 'second'] });
    const [one] = await find('licence', { where: { source: 'second' } });
    expect(one!.metadata).toEqual({ source: 'second' });
    expect(one!.id).toMatch(/^second#/);
    expect((await find('anchors'))[0]!.metadata).toEqual({ source: 'harbour' });
  });

  it('brings the neighbours of a passage along, as passages of their own', async () => {
    expect(texts(await find('buoys', { expand: 1 }))).toEqual(SECTIONS.slice(0, 3));
    expect(texts(await find('anchors', { expand: 2 }))).toEqual(SECTIONS.slice(0, 3));
    expect(texts(await find('docks', { expand: 10 }))).toEqual(SECTIONS);
    expect(texts(await find('anchors buoys', { expand: 1 })).sort()).toEqual(SECTIONS.slice(0, 3));
    const found = await find('buoys', { expand: 1 });
    expect(new Set(found.map(({ score }) => score)).size).toBe(1);
    expect(found[0]!.id).toBe((await find('anchors'))[0]!.id);
    expect(texts(await find('licence', { expand: 1, where: { source: 'second' } }))).toEqual(['Another text.', SHARED]);
  });

  it('leaves passages of a lower score out', async () => {
    const all = await find('anchors ships another');
    expect(all).toHaveLength(2);
    expect(await find('anchors ships another', { minScore: all[0]!.score })).toEqual([all[0]]);
    expect(await find('anchors ships another', { minScore: all[0]!.score + 1 })).toEqual([]);
  });

  it('takes earlier questions into account, for less than the question', async () => {
    expect(texts(await find({ text: 'And what do they do?', earlier: 'Tell me of cranes' }))).toEqual([SECTIONS[2]]);
    const both = await find({ text: 'And buoys?', earlier: 'Tell me of cranes' });
    expect(texts(both)).toEqual([SECTIONS[1], SECTIONS[2]]);
    expect(both[1]!.score).toBeLessThan(both[0]!.score / 2);
  });

  it('has no neighbours where a store knows none', async () => {
    const search = new RefinedRetriever(collection.retriever).search({ text: 'x' }, { k: 1, signal, expand: 1 });
    await expect(search.next()).rejects.toMatchObject({ code: 'WARMPATH_INVALID_REQUEST', path: 'expand' });
  });
});
