import fc from 'fast-check';
import type { StagedRetriever, Where } from '../src/index.js';

const { signal } = new AbortController();

/** The ids of the last stage. */
export async function idsOf(retriever: StagedRetriever, where: Where): Promise<string[]> {
  let ids: string[] = [];
  for await (const { candidates } of retriever.search({ text: 'word' }, { k: 100, signal, where })) {
    ids = candidates.map(({ id }) => id.split('#')[0]!);
  }
  return ids.sort();
}

const PLACES = ['docs/a.md', 'docs/b.md', 'notes/a.md'];
/** Documents that are all found by `word`, with metadata to filter by. */
export const DOCUMENTS = PLACES.flatMap((source, place) =>
  [2019, 2020.5, '2020', true].map((year, i) => ({
    id: `${place}-${i}`,
    content: `word ${place} ${i}`,
    metadata: { source, year, tags: i % 2 === 0 ? ['x', 'y'] : 'y', deep: { lang: i < 2 ? 'de' : 'en' } },
  })),
);

const value = fc.constantFrom<string | number | boolean>(2019, 2020.5, '2020', true, 'x', 'y', 'de', 'docs/a.md');
const condition = fc.oneof(
  value,
  fc.record({ in: fc.array(value, { minLength: 1, maxLength: 3 }) }),
  fc.record(
    {
      gte: fc.constantFrom<string | number>(2019, 2020, '2', 'd'),
      lt: fc.constantFrom<string | number>(2021, 'z', '3'),
    },
    { requiredKeys: [] },
  ),
  fc.record({ gt: fc.constantFrom(2019, 2000), lte: fc.constantFrom(2020.5, 2020) }, { requiredKeys: [] }),
  fc.record({ prefix: fc.constantFrom('docs/', 'd', '', 'x') }),
);
/** Filters over those. */
export const wheres = fc.dictionary(fc.constantFrom('source', 'year', 'tags', 'deep.lang', 'none'), condition, {
  maxKeys: 2,
});

/** The filter once more, written as plainly as can be. */
function naive(where: Where, metadata: Record<string, unknown>): boolean {
  for (const [field, given] of Object.entries(where)) {
    const found = field === 'deep.lang' ? (metadata['deep'] as { lang: string }).lang : metadata[field];
    const values = Array.isArray(found) ? found : [found];
    const wanted = typeof given === 'object' ? given : { in: [given] };
    const fits = values.some((each) => {
      if (wanted.in && !wanted.in.includes(each)) return false;
      if (wanted.prefix !== undefined && (typeof each !== 'string' || each.indexOf(wanted.prefix) !== 0)) return false;
      for (const name of ['gt', 'gte', 'lt', 'lte'] as const) {
        const bound = wanted[name];
        if (bound === undefined) continue;
        if (typeof bound !== typeof each) return false;
        if (name === 'gt' && !(each > bound)) return false;
        if (name === 'gte' && !(each >= bound)) return false;
        if (name === 'lt' && !(each < bound)) return false;
        if (name === 'lte' && !(each <= bound)) return false;
      }
      return true;
    });
    if (!fits) return false;
  }
  return true;
}

/** The ids that a filter leaves. */
export const expected = (where: Where) =>
  DOCUMENTS.filter(({ metadata }) => naive(where, metadata))
    .map(({ id }) => id)
    .sort();
