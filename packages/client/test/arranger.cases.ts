import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Arranger } from '../src/index.js';

const passage = (id: string) => ({
  id,
  title: `About ${id}`,
  content: `${id} was found in a year of many rains. `.repeat(8),
});
const order = async (arranger: Arranger, ids: string[], fields: object = {}) => {
  const arranged = await arranger.arrange({ documents: ids.map(passage), preamble: 'Be brief.', ...fields });
  return { ...arranged, ids: arranged.documents.map(({ id }) => id) };
};

/** What every arranger does, wherever it runs. `make` gives one that has served nothing. */
export function arrangerCases(name: string, make: () => Promise<Arranger>): void {
  describe(name, () => {
    it('continues what was served, and says in which order to read', async () => {
      const arranger = await make();
      const first = await order(arranger, ['a', 'b', 'c']);
      expect(first).toMatchObject({ ids: ['a', 'b', 'c'], hint: undefined, predictedCachedTokens: 0, warnings: [] });
      const second = await order(arranger, ['b', 'd', 'a']);
      expect(second.ids).toEqual(['a', 'b', 'd']);
      expect(second.documents.map(({ rank }) => rank)).toEqual([2, 0, 1]);
      expect(second.documents.map(({ source }) => source)).toEqual([2, 0, 1]);
      expect(second.hint?.labels).toEqual(['d', 'a']);
      expect(second.predictedCachedTokens).toBeGreaterThan(100);
      const shared = first.text.slice(0, first.text.indexOf('<document id="c"'));
      expect(second.text.startsWith(shared)).toBe(true);
      expect(second.text.endsWith(second.hint!.text)).toBe(true);
    });

    it('keeps preambles and models apart', async () => {
      const arranger = await make();
      await order(arranger, ['a', 'b']);
      for (const fields of [{ preamble: 'Be long.' }, { model: 'other' }]) {
        expect((await order(arranger, ['b', 'a'], fields)).ids).toEqual(['b', 'a']);
      }
    });

    it('keeps to the switches of a request', async () => {
      const arranger = await make();
      await order(arranger, ['a', 'b', 'c']);
      expect((await order(arranger, ['c', 'b', 'a'], { policy: 'retrieval' })).ids).toEqual(['c', 'b', 'a']);
      expect((await order(arranger, ['c', 'b', 'a'], { maxShift: 0 })).ids).toEqual(['c', 'b', 'a']);
      expect((await order(arranger, ['b', 'a', 'c'], { shiftPrice: 10_000 })).ids).toEqual(['b', 'a', 'c']);
      expect((await order(arranger, ['c', 'b', 'a'], { pin: ['c'] })).ids[0]).toBe('c');
      expect((await order(arranger, ['c', 'b', 'a'], { hints: false })).hint).toBeUndefined();
    });

    it('takes back what failed', async () => {
      const arranger = await make();
      const first = await order(arranger, ['a', 'b']);
      await first.failed();
      const second = await order(arranger, ['b', 'a']);
      expect(second).toMatchObject({ ids: ['b', 'a'], predictedCachedTokens: 0 });
    });

    it('believes the engine when it had nothing cached', async () => {
      const arranger = await make();
      const documents = ['a', 'b', 'c', 'd'];
      await (await order(arranger, documents)).completed({ promptTokens: 900, cachedTokens: 0 });
      const second = await order(arranger, documents);
      expect(second.predictedCachedTokens).toBeGreaterThan(200);
      // Something else filled the cache meanwhile: all that was served before is gone, too.
      await order(arranger, ['x', 'y']).then((other) => other.completed({ promptTokens: 500, cachedTokens: 0 }));
      await second.completed({ promptTokens: 900, cachedTokens: 0 });
      expect((await order(arranger, ['y', 'x'])).predictedCachedTokens).toBeGreaterThan(0);
      // A second report about the same context changes nothing, and costs nothing.
      await second.failed();
      expect((await order(arranger, documents)).predictedCachedTokens).toBeGreaterThan(200);
    });

    it('says where each document stood in the caller’s list when some stood there twice', async () => {
      const arranger = await make();
      const documents = [passage('a'), passage('a'), passage('b'), { ...passage('a'), content: 'Another text.' }];
      const arranged = await arranger.arrange({ documents });
      expect(arranged.documents.map(({ source }) => source)).toEqual([0, 2, 3]);
      expect(arranged.warnings.map(({ code, path }) => `${code} ${path}`)).toEqual([
        'WARMPATH_DUPLICATE_DOCUMENT documents[1]',
        'WARMPATH_CONFLICTING_DOCUMENT documents[3].id',
      ]);
    });

    it('reads documents in the form of other libraries, and leaves empty ones out', async () => {
      const arranger = await make();
      const documents = ['A text.', { pageContent: ' ' }, { id: 7, data: { text: 'Another text.' } }];
      const arranged = await arranger.arrange({ documents });
      expect(arranged.documents).toMatchObject([{ source: 0 }, { id: '7', source: 2 }]);
      expect(arranged.warnings).toMatchObject([{ code: 'WARMPATH_EMPTY_DOCUMENT', path: 'documents[1].pageContent' }]);
    });

    it.each([
      ['no documents', { documents: undefined }, 'WARMPATH_INVALID_DOCUMENTS', 'documents'],
      ['one that is none', { documents: [passage('a'), null] }, 'WARMPATH_INVALID_DOCUMENT', 'documents[1]'],
      ['an unknown policy', { documents: [passage('a')], policy: 'exat' }, 'WARMPATH_UNKNOWN_POLICY', 'policy'],
    ])('refuses %s', async (_, request, code, path) => {
      const arranger = await make();
      const refused = arranger.arrange(request as never);
      await expect(refused).rejects.toMatchObject({ code, message: expect.stringContaining(path) });
    });

    it('loses no document and repeats none', async () => {
      const contexts = fc.array(fc.array(fc.constantFrom(...'abcdefgh'), { maxLength: 8 }), {
        minLength: 1,
        maxLength: 6,
      });
      await fc.assert(
        fc.asyncProperty(contexts, async (asked) => {
          const arranger = await make();
          for (const ids of asked) {
            const { ids: arranged, documents } = await order(arranger, ids);
            expect([...arranged].sort()).toEqual([...new Set(ids)].sort());
            for (const { id, source } of documents) expect(ids[source]).toBe(id);
          }
        }),
        { seed: 20_261_121, numRuns: 20 },
      );
    });
  });
}
