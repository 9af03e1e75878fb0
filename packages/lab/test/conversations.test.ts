import { describe, expect, it } from 'vitest';
import {
  type ConversationLayout,
  labDocument,
  SglangRadixCache,
  simulate,
  type Workload,
  type WorkloadRequest,
} from '../src/index.js';

const documents = Object.fromEntries([...'abcde'].map((id) => [id, labDocument(id, 100)]));

function turn(session: string, ids: string, number: number): WorkloadRequest {
  return {
    documents: [...ids].map((id) => documents[id]!),
    question: { key: `q${session}${number}`, tokens: 10 },
    answer: { key: `a${session}${number}`, tokens: 20 },
    session,
  };
}

const workload: Workload = {
  name: 'two conversations',
  preamble: { key: 'preamble', tokens: 50 },
  requests: [turn('x', 'ab', 1), turn('y', 'ab', 1), turn('x', 'bc', 2), turn('y', 'ba', 2), turn('x', 'cd', 3)],
};

const serve = (conversations: ConversationLayout, policy: 'retrieval' | 'exact' = 'retrieval') =>
  simulate(workload, policy, { conversations, cache: new SglangRadixCache() }).map(
    ({ promptTokens, cachedTokens, repeatedDocuments }) => [promptTokens, cachedTokens, repeatedDocuments],
  );

describe('conversations', () => {
  it('put documents first and what was said behind them', () => {
    expect(serve('documents-first')).toEqual([
      [260, 0, 0],
      [260, 250, 0],
      [290, 50, 0],
      // b a: as the turn of x before, b c.
      [290, 150, 0],
      [320, 50, 0],
    ]);
  });

  it('append what was sent: all of the turns before is reused', () => {
    expect(serve('appended')).toEqual([
      [260, 0, 0],
      [260, 250, 0],
      [490, 260, 0],
      [490, 260, 0],
      [720, 490, 0],
    ]);
  });

  it('leave out, de-duplicated, what the conversation holds', () => {
    expect(serve('deduplicated')).toEqual([
      [260, 0, 0],
      [260, 250, 0],
      // c, and a hint of 12 tokens for b.
      [402, 260, 1],
      // Two hints.
      [314, 260, 2],
      [544, 402, 1],
    ]);
  });

  it('keep the order that was served, so that the next turn finds it', () => {
    const reordered = { ...workload, requests: [turn('x', 'ab', 1), turn('y', 'ba', 1), turn('y', 'cd', 2)] };
    const served = simulate(reordered, 'exact', { conversations: 'appended', cache: new SglangRadixCache() });
    // The second conversation follows the first (a b), and its next turn follows that.
    expect(served.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 250, 260]);
  });

  it('stand alone without an answer or a session', () => {
    const requests = workload.requests.map(({ answer: _, ...request }) => request);
    const served = simulate({ ...workload, requests }, 'retrieval', { conversations: 'deduplicated' });
    expect(served.map(({ promptTokens }) => promptTokens)).toEqual([260, 260, 260, 260, 260]);
  });

  it('forget the oldest beyond 4,096', () => {
    const many = Array.from({ length: 4_097 }, (_, i) => turn(`s${i}`, 'a', 1));
    const late = { ...workload, requests: [...many, turn('s1', 'a', 2), turn('s0', 'a', 2)] };
    const served = simulate(late, 'retrieval', { conversations: 'appended', cache: new SglangRadixCache() });
    expect(served.slice(-2).map(({ promptTokens }) => promptTokens)).toEqual([290, 160]);
  });
});

describe('a recorded prefix', () => {
  it('stands before the documents and is found by its blocks', () => {
    const block = (key: string) => ({ key, tokens: 100 });
    const request = (keys: string): WorkloadRequest => ({
      documents: [],
      history: [...keys].map(block),
      question: { key: keys, tokens: 1 },
    });
    const recorded = { ...workload, requests: [request('vw'), request('vx'), request('vxz')] };
    const served = simulate(recorded, 'exact', { cache: new SglangRadixCache() });
    expect(served.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 150, 250]);
  });
});
