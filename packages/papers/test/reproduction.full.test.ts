import { createWorkload, simulate, VllmBlockCache, type Workload } from '@warmpath/lab';
import { describe, expect, it } from 'vitest';
import { PAPERS, reproduce, tablesOf } from '../src/papers.js';
import { planned } from '../src/planned.js';
import { markdownOf } from '../src/print-table.js';
import { differenceOf, isNear, type ReproducedTable } from '../src/reproduction.js';

const tables = reproduce('ragcache++');

/** Ours, by table, row and figure. */
function ours(table: string, row: string, figure: string): number {
  const rows = tables.find(({ title }) => title.startsWith(table))!.rows;
  const figures = rows.find(({ label }) => label === row)!.figures;
  return figures.find(({ name }) => name === figure)!.ours;
}

describe('RAGCache++', () => {
  it('says of every table on which engine model it rests', () => {
    for (const table of tables) {
      expect(table.model, table.title).toMatch(/vLLM|no cache|this machine's clock/);
      expect(markdownOf(table)).toContain(`## ${table.title}\n\nEngine model: ${table.model}.\n`);
    }
  });

  it.each([
    ['APC+Retrieval', 59.4, 54.3, 12.3],
    ['APC+Sorted', 78.5, 73.1, 25.6],
    ['APC+Optimized', 41.7, 50.1, 20],
  ])('headline, %s: median, mean and Fast%%', (strategy, p50, average, fast) => {
    expect(ours('Table 1', strategy, 'p50 ms')).toBeCloseTo(p50, 1);
    expect(ours('Table 1', strategy, 'mean ms')).toBeCloseTo(average, 1);
    expect(ours('Table 1', strategy, 'Fast%')).toBeCloseTo(fast, 1);
  });

  it('names what Fast% is by its definition', () => {
    expect(tables[0]!.notes.join()).toContain('APC+Retrieval 90.3, APC+Sorted 42.6, APC+Optimized 90.3');
  });

  it('has the overlaps of the sweep', () => {
    for (const { figures } of tables.find(({ title }) => title.startsWith('Table 12'))!.rows) {
      const [jaccard] = figures;
      expect(Math.abs(jaccard!.ours - (jaccard!.paper as number))).toBeLessThan(0.001);
    }
  });

  it('has the means of true zero', () => {
    expect(ours('§4.4', 'greedy over retrieval order', 'mean gain %')).toBeCloseTo(10.4, 1);
  });

  it('comes within 5 ms of every figure of concurrent load and retrieval latency', () => {
    for (const [paper, table] of [
      ['ragcache++', 'table-8'],
      ['cacheweaver', 'table-11'],
      ['cacheweaver', 'table-12'],
    ] as const) {
      const [{ rows }] = reproduce(paper, table) as [ReproducedTable];
      const figures = rows.flatMap((row) => row.figures).filter(({ name }) => name.endsWith(' ms'));
      expect(figures.length).toBeGreaterThan(10);
      for (const { paper, ours } of figures) expect(Math.abs(ours - (paper as number))).toBeLessThan(5);
    }
  });

  it('has the clock of pipelining by sending prompts twice, and no gain with new ones', () => {
    for (const { figures } of tables.find(({ title }) => title.startsWith('Table 6'))!.rows) {
      const [serial, pipelined, , others] = figures;
      expect(Math.abs(serial!.ours - (serial!.paper as number))).toBeLessThan(3);
      expect(Math.abs(pipelined!.ours - (pipelined!.paper as number))).toBeLessThan(8);
      expect(serial!.ours - pipelined!.ours).toBeGreaterThan(30);
      expect(others!.ours).toBeGreaterThanOrEqual(serial!.ours);
    }
  });

  it('knows what batches do to each strategy', () => {
    const reuse = (strategy: string, sharing: string) => ours('Batches', strategy, `geospatial B=16, ${sharing}`);
    const [exact, foresight] = ['exact, told at once', 'foresight, told at once, batch mates known'];
    expect(reuse(foresight, 'shared')).toBeGreaterThan(reuse(exact, 'shared') + 4);
    expect(reuse(exact, 'shared')).toBeGreaterThan(reuse('greedy, history of the batch before', 'shared') + 4);
    // Counting on mates that share nothing costs more than it brings; one leader brings it back.
    expect(reuse(foresight, 'not shared')).toBeLessThan(reuse(exact, 'not shared'));
    expect(reuse(foresight, 'leader first')).toBeGreaterThan(reuse(exact, 'leader first') + 4);
  });

  it('explains every table', () => {
    for (const { notes, rows } of tables) {
      expect(notes.length).toBeGreaterThan(0);
      expect(new Set(rows.map(({ figures }) => figures.map(({ name }) => name).join())).size).toBe(1);
    }
  });
});

/** The only row of figures of that name, by label. */
function column(table: ReproducedTable, figure: string): Map<string, number> {
  return new Map(table.rows.map(({ label, figures }) => [label, figures.find(({ name }) => name === figure)!.ours]));
}

describe('CacheWeaver', () => {
  const cacheweaver = reproduce('cacheweaver');

  it('has every table and figure that does not need a model', () => {
    const numbers = cacheweaver.map(({ title }) => /^(?:Table|Figure) \d+/.exec(title)?.[0]);
    expect(new Set(numbers)).toEqual(
      new Set([
        ...[
          'Table 3',
          'Table 4',
          'Table 5',
          'Table 6',
          'Table 8',
          'Table 9',
          'Table 10',
          'Table 11',
          'Table 12',
          'Table 13',
        ],
        'Figure 4',
      ]),
    );
  });

  it('comes within 5 ms of the headline medians of configuration B, and has the published Fast%', () => {
    const [table] = reproduce('cacheweaver', 'table-3b') as [ReproducedTable];
    for (const { figures } of table.rows) {
      const [p50, , average, fast] = figures;
      expect(Math.abs(p50!.ours - (p50!.paper as number))).toBeLessThan(5);
      expect(Math.abs(average!.ours - (average!.paper as number))).toBeLessThan(5);
      expect(Math.abs(fast!.ours - (fast!.paper as number))).toBeLessThanOrEqual(1.01);
    }
    expect(table.notes[0]).toContain('APC+Retrieval 90.3, APC+Sorted 42.6, APC+Optimized 90.3');
  });

  it('finds no gain without locality, and the most at moderate overlap', () => {
    for (const gain of column(reproduce('cacheweaver', 'table-6')[0]!, 'p50 gain %').values()) expect(gain).toBe(0);
    const byOverlap = column(reproduce('cacheweaver', 'figure-4')[0]!, 'p50 gain %');
    expect(byOverlap.get('overlap 0.6')).toBe(Math.max(...byOverlap.values()));
    expect(byOverlap.get('overlap 0.8')).toBe(0);
    expect(byOverlap.get('overlap 0.0')).toBe(byOverlap.get('overlap 0.2'));
  });

  it('counts the requests that can reuse a document', () => {
    const reusing = column(reproduce('cacheweaver', 'table-13')[0]!, 'requests with a document reused');
    expect([...reusing.values()]).toEqual([176, 176]);
  });
});

describe('CP-Tree', () => {
  it('starts from the published shares, and gains within the published range by the tree', () => {
    const shares = reproduce('cp-tree', 'observations')[0]!.rows.flatMap(({ figures }) => figures);
    for (const { paper, ours } of shares) if (typeof paper === 'number') expect(Math.abs(ours - paper)).toBeLessThan(2);
    const gains = column(reproduce('cp-tree', 'evaluation')[0]!, 'TTFT ×');
    expect(gains.get('single questions, tree, greedy')).toBeGreaterThan(1.2);
    expect(gains.get('single questions, tree, exact')).toBeLessThan(1.6);
    expect(gains.get('single questions, hotness')).toBeLessThan(1.1);
  });
});

describe('RAGBoost', () => {
  it('gains by de-duplication what 40 % of repeated documents allow', () => {
    for (const gain of column(reproduce('ragboost', 'table-2a')[0]!, 'gain ×').values()) {
      expect(gain).toBeGreaterThan(1.3);
      expect(gain).toBeLessThan(1 / 0.6);
    }
  });
});

describe('RAGBoost beside its tables', () => {
  it('sends documents to the agents that know them, and gains by it', () => {
    const [table] = reproduce('ragboost', 'chain-of-agents', { seeds: [101], requests: 150 }) as [ReproducedTable];
    for (const gain of column(table, 'gain ×').values()) expect(gain).toBeGreaterThan(1.1);
    const [[before], [after]] = ['hits by rank %', 'hits, agent that knows %'].map((name) => [
      ...column(table, name).values(),
    ]) as [[number], [number]];
    expect(after).toBeGreaterThan(before + 10);
  });

  it('loses all but the preamble where a hint stands in front', () => {
    const [table] = reproduce('ragboost', 'hint-position', { seeds: [101] }) as [ReproducedTable];
    const [without, behind, inFront] = [...column(table, 'cached %').values()] as [number, number, number];
    expect(behind).toBeGreaterThan(without - 1);
    expect(inFront).toBeLessThan(1);
  });

  it('states no hint where nothing is shared', () => {
    const hints = column(reproduce('ragboost', 'worst-case')[0]!, 'tokens of hints');
    expect([...hints.values()]).toEqual([0, 0, 0]);
  });
});

describe('a figure beside a range', () => {
  const figure = (ours: number, paper: number | readonly [number, number]) => ({ name: 'x', paper, ours });

  it('differs by what lies outside', () => {
    expect([1.1, 1.2, 1.5, 2, 2.5].map((ours) => differenceOf(figure(ours, [1.2, 2])))).toEqual([
      expect.closeTo(-0.1, 9),
      0,
      0,
      0,
      0.5,
    ]);
    expect(differenceOf(figure(3, 4))).toBe(-1);
  });

  it('is near within a tenth of the nearer end', () => {
    expect([1.07, 1.09, 2.19, 2.21].map((ours) => isNear(figure(ours, [1.2, 2])))).toEqual([false, true, true, false]);
    expect([89, 91, 109, 111].map((ours) => isNear(figure(ours, 100)))).toEqual([false, true, true, false]);
    expect([0, 0.1].map((ours) => isNear(figure(ours, 0)))).toEqual([true, false]);
  });

  it('is printed with both ends', () => {
    const rows = [1.5, 2.5].map((ours) => ({ label: `${ours}`, figures: [figure(ours, [1.2, 2])] }));
    expect(markdownOf({ title: 't', model: 'm', rows, notes: [] })).toMatch(
      /1\.2–2\.0 \| +1\.5 \| within \|\n.*1\.2–2\.0 \| +2\.5 \| +\+0\.5 \|/,
    );
  });
});

describe('planned', () => {
  const workload = createWorkload('sessions', { seed: 3 });
  const sample = { ...workload, requests: workload.requests.slice(0, 120) };
  const hits = (scheduled: boolean) => {
    const cache = new VllmBlockCache({ blocks: 330 });
    const served = simulate(planned(sample, { method: 'context-index', scheduled }), 'retrieval', { cache });
    return served.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0);
  };

  it('keeps every request and its documents', () => {
    const sets = ({ requests }: Workload) =>
      requests.map(({ documents, question }) => [question.key, ...documents.map(({ id }) => id).sort()].join()).sort();
    for (const scheduled of [false, true]) {
      expect(sets(planned(sample, { method: 'combined', scheduled }))).toEqual(sets(sample));
    }
    const inPlace = planned(sample, { method: 'combined', scheduled: false });
    expect(inPlace.requests.map(({ question }) => question)).toEqual(sample.requests.map(({ question }) => question));
  });

  it('gains by ordering, and by scheduling more', () => {
    const plain = simulate(sample, 'retrieval', { cache: new VllmBlockCache({ blocks: 330 }) });
    expect(hits(false)).toBeGreaterThan(plain.reduce((sum, { cachedTokens }) => sum + cachedTokens, 0));
    expect(hits(true)).toBeGreaterThan(1.2 * hits(false));
  });
});

describe('reproduce', () => {
  it('knows every table by a name of its own', () => {
    for (const paper of PAPERS) expect(new Set(tablesOf(paper)).size).toBe(tablesOf(paper).length);
    expect(() => reproduce('ragboost', 'table-11')).toThrow(/did you mean `table-1`/);
    expect(() => reproduce('ragboost', 'tale')).toThrow(expect.objectContaining({ path: 'table' }));
  });
});
