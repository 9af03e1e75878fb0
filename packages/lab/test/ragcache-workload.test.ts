import { describe, expect, it } from 'vitest';
import { createWorkload, mean, percentile, ragCacheTrace, ragCacheWorkload } from '../src/index.js';

describe("RAGCache's workload", () => {
  const options = { dataset: 'mmlu', k: 2, requests: 20_000 } as const;

  it.each([
    ['mmlu', 0.03],
    ['natural-questions', 0.1],
  ] as const)('%s sends 60 %% of its requests to its most popular documents', (dataset, share) => {
    const trace = ragCacheTrace(1, { ...options, dataset, k: 1 });
    const popular = 5_000 * share;
    const toPopular = trace.filter(({ documents }) => documents[0]! < popular).length;
    expect(toPopular / trace.length).toBeCloseTo(0.6, 1);
  });

  it.each([
    ['mmlu', 0.03],
    ['natural-questions', 0.1],
  ] as const)('%s keeps its skew in a smaller corpus of shorter pages', (dataset, share) => {
    const small = { ...options, dataset, k: 1, documents: 300, shrink: 16 };
    const trace = ragCacheTrace(1, small);
    expect(Math.max(...trace.flatMap(({ documents }) => documents))).toBeLessThan(300);
    const toPopular = trace.filter(({ documents }) => documents[0]! < 300 * share).length;
    expect(toPopular / trace.length).toBeCloseTo(0.6, 1);
    const tokens = ragCacheWorkload(1, { ...small, requests: 50 }).requests.flatMap(({ documents }) =>
      documents.map((document) => document.tokens),
    );
    expect(Math.max(...tokens)).toBeLessThanOrEqual(8_192 / 16);
  });

  it('has pages of 3,718 tokens on average, the same in every request, and cuts them on demand', () => {
    const { requests } = ragCacheWorkload(1, { ...options, requests: 20_000, k: 1 });
    const lengths = new Map(requests.flatMap(({ documents }) => documents.map(({ id, tokens }) => [id, tokens])));
    expect(mean([...lengths.values()])).toBeGreaterThan(3_550);
    expect(mean([...lengths.values()])).toBeLessThan(3_890);
    for (const { documents } of requests) for (const { id, tokens } of documents) expect(tokens).toBe(lengths.get(id));
    const cut = ragCacheWorkload(1, { ...options, requests: 2_000, mostTokens: 1_984 }).requests;
    expect(Math.max(...cut.flatMap(({ documents }) => documents.map(({ tokens }) => tokens)))).toBe(1_984);
  });

  it('answers MMLU with one token, and Natural Questions with six on average, 99 % with 32 or fewer', () => {
    const answers = (dataset: 'mmlu' | 'natural-questions') =>
      ragCacheWorkload(1, { ...options, dataset }).requests.map(({ answer }) => answer!.tokens);
    expect(new Set(answers('mmlu'))).toEqual(new Set([1]));
    expect(mean(answers('natural-questions'))).toBeCloseTo(6, 0);
    expect(percentile(answers('natural-questions'), 0.99)).toBeLessThanOrEqual(33);
  });

  it('retrieves different documents in a request, and more of them in the same order', () => {
    for (const k of [1, 2, 3, 5]) {
      for (const { documents } of ragCacheTrace(2, { ...options, requests: 500, k })) {
        expect(new Set(documents).size).toBe(k);
      }
    }
  });

  it('is the same for a seed and another for another', () => {
    const small = { ...options, requests: 50 };
    expect(ragCacheWorkload(3, small)).toEqual(ragCacheWorkload(3, small));
    expect(ragCacheTrace(3, small)).not.toEqual(ragCacheTrace(4, small));
    expect(
      createWorkload('ragcache-mmlu', { seed: 3 })
        .requests.slice(0, 50)
        .map(({ documents }) => documents),
    ).toEqual(
      ragCacheWorkload(3, { ...small, requests: 2_880 })
        .requests.slice(0, 50)
        .map(({ documents }) => documents),
    );
  });

  it('keeps its most popular document unless it drifts', () => {
    const share = (drift: number, from: number) => {
      const trace = ragCacheTrace(5, { ...options, k: 1, drift }).slice(from, from + 2_000);
      return trace.filter(({ documents }) => documents[0] === 0).length / trace.length;
    };
    expect(share(0, 18_000)).toBeCloseTo(share(0, 0), 1);
    expect(share(0, 18_000)).toBeGreaterThan(0.08);
    expect(share(0.1, 18_000)).toBeLessThan(0.02);
  });
});
