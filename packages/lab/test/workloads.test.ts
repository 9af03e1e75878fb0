import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import {
  AGENT_TOKENS,
  chainOfAgents,
  createWorkload,
  labDocument,
  meanAdjacentJaccard,
  simulate,
  WORKLOAD_CATALOGUE,
} from '../src/index.js';

/** The papers' traces for seed 42: mean adjacent Jaccard, some requests, and the hash of all as compact JSON. */
const EXPECTED = [
  {
    name: 'headline',
    jaccard: 0.5199808566642747,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 3, 8],
    ],
    last: [194, 198, 197, 195, 190],
    sha256: '9e529e0f14c87fc4c9db44dc3618109cdd73d30db63efe07ce4bc69fc61774fe',
  },
  {
    name: 'headline-a',
    jaccard: 0.5218855218855218,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 3, 8],
    ],
    last: [91, 98, 92, 97, 94],
    sha256: '58e554325f42ea40643db7dea839c9993d45031aa09d9f3ee9d5dcbc3859049f',
  },
  {
    name: 'overlap-0.0',
    jaccard: 0.38619854721549624,
    first: [
      [1, 0, 4, 9, 6],
      [1, 3, 2, 6, 7],
    ],
    last: [50, 54, 58, 52, 59],
    sha256: 'caecd38434abff85afc180cf1837cbdf01af1d7e9efe745a6cd65703d2ece1e9',
  },
  {
    name: 'overlap-0.2',
    jaccard: 0.38619854721549624,
    first: [
      [1, 0, 4, 9, 6],
      [1, 3, 2, 6, 7],
    ],
    last: [50, 54, 58, 52, 59],
    sha256: 'caecd38434abff85afc180cf1837cbdf01af1d7e9efe745a6cd65703d2ece1e9',
  },
  {
    name: 'overlap-0.4',
    jaccard: 0.4174737691686842,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 7, 2],
    ],
    last: [54, 58, 59, 55, 51],
    sha256: '17888cba22076335b2f239298a3d7f6855df640ae309ef48d1a415ca998df678',
  },
  {
    name: 'overlap-0.6',
    jaccard: 0.5262308313155769,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 3, 8],
    ],
    last: [59, 55, 53, 52, 51],
    sha256: '183e89ac598de791556cadce380a515a22a567c1d331959c4cb041efe7161f8d',
  },
  {
    name: 'overlap-0.8',
    jaccard: 0.6610169491525423,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 9, 3],
    ],
    last: [54, 51, 53, 56, 52],
    sha256: '89b99097f046a6097e1c8fdedbb535c438a036b0fa0bbf171cba0228cb786aa6',
  },
  {
    name: 'k-3',
    jaccard: 0.2959595959595957,
    first: [
      [1, 0, 4],
      [1, 4, 9],
    ],
    last: [91, 93, 95],
    sha256: 'b1ba6da0552ca4d0efa62a7011483bc7cd183769c76c658b91da011bed00d3c5',
  },
  {
    name: 'k-5',
    jaccard: 0.5218855218855218,
    first: [
      [1, 0, 4, 9, 6],
      [1, 0, 4, 3, 8],
    ],
    last: [91, 98, 92, 97, 94],
    sha256: '58e554325f42ea40643db7dea839c9993d45031aa09d9f3ee9d5dcbc3859049f',
  },
  {
    name: 'k-7',
    jaccard: 0.6148709315375986,
    first: [
      [1, 0, 4, 9, 6, 5, 8],
      [1, 0, 4, 9, 8, 7, 2],
    ],
    last: [99, 98, 95, 92, 94, 96, 93],
    sha256: '286bdc64103ef3d0ed737dd54d1557660dee7def98519cbd3c1f9546d12fa329',
  },
  {
    name: 'k-10',
    jaccard: 0.9090909090909091,
    first: [
      [1, 0, 4, 9, 6, 5, 8, 2, 3, 7],
      [1, 0, 4, 9, 6, 5, 2, 8, 7, 3],
    ],
    last: [94, 98, 99, 95, 93, 92, 91, 97, 90, 96],
    sha256: '3706a982275479d85a6b6c220316c8a106b1db2bd023860b6b4cbe601dd1d702',
  },
  {
    name: 'geospatial',
    jaccard: 0.17027598309005332,
    first: [
      [23, 34, 22, 31, 21],
      [34, 28, 21, 29, 26],
    ],
    last: [56, 59, 60, 53, 57],
    sha256: '9ae019d0d3ff53a5327afed61bce20ff30e7d0ce070ba6d49329f1dfc6e9867b',
  },
  {
    name: 'tf-idf',
    jaccard: 0.06030150753768844,
    first: [
      [357, 351, 353, 355, 359],
      [351, 355, 357, 359, 353],
    ],
    last: [901, 903, 905, 907, 909],
    sha256: 'cb088cfa1c25e4c342aac5a0e381f413e19e7a522da6b46b09c0c49044b472d9',
  },
];

const documentsOf = (name: string, seed: number) =>
  WORKLOAD_CATALOGUE.find((entry) => entry.name === name)!
    .trace(seed)
    .map(({ documents }) => documents);

describe.each(EXPECTED)('the trace $name', ({ name, jaccard, first, last, sha256 }) => {
  it('equals the published one byte for byte', () => {
    const documents = documentsOf(name, 42);
    expect(documents.slice(0, 2)).toEqual(first);
    expect(documents.at(-1)).toEqual(last);
    expect(createHash('sha256').update(JSON.stringify(documents)).digest('hex')).toBe(sha256);
  });

  it('has the published overlap', () => {
    expect(meanAdjacentJaccard(createWorkload(name, { seed: 42 }).requests)).toBe(jaccard);
  });
});

describe('workloads without a published trace', () => {
  it('have the published overlap', () => {
    const jaccard = (name: string) => meanAdjacentJaccard(createWorkload(name, { seed: 42 }).requests);
    expect(jaccard('mixed')).toBeCloseTo(0.3118, 4);
    expect(jaccard('true-zero')).toBe(0);
    expect(jaccard('overlap-0.0-200')).toBeCloseTo(0.3606, 4);
    expect(jaccard('overlap-0.8-200')).toBeCloseTo(0.665, 4);
  });

  it('has the overlap of the three published seeds', () => {
    const jaccard = (seed: number) => meanAdjacentJaccard(createWorkload('headline', { seed }).requests);
    expect([42, 123, 456].map((seed) => jaccard(seed).toFixed(4))).toEqual(['0.5200', '0.5016', '0.5140']);
  });
});

describe.each(WORKLOAD_CATALOGUE.map(({ name }) => name))('the workload %s', (name) => {
  it('repeats no document within a request, and is the same for the same seed', () => {
    const documents = documentsOf(name, 7);
    for (const request of documents) expect(new Set(request).size).toBe(request.length);
    expect(documentsOf(name, 7)).toEqual(documents);
  });

  it('changes with the seed, but for the recorded one', () => {
    expect(JSON.stringify(documentsOf(name, 7)) === JSON.stringify(documentsOf(name, 8))).toBe(name === 'tf-idf');
  });
});

describe('a chain of agents', () => {
  const choices = ['chain-of-agents', 'chain-of-agents-routed'];

  it.each(choices)('%s: every document of a question has an agent of its own, and a manager answers', (name) => {
    for (const lengths of ['equal', 'unequal'] as const) {
      const { requests } = createWorkload(name, { seed: 5, lengths });
      const questions = documentsOf(name, 5);
      expect(requests).toHaveLength(questions.length * 16);
      for (const [number, asked] of questions.entries()) {
        const chain = requests.slice(16 * number, 16 * number + 16);
        const read = chain.flatMap(({ documents }) => documents.map(({ id }) => Number(id.slice(4))));
        expect(read).toEqual(asked);
        const agents = chain.map(({ history }) => history![0]!.key);
        expect(new Set(agents).size).toBe(16);
        expect(agents.at(-1)).toBe('manager');
        expect(agents.every((agent) => agent === 'manager' || Number(agent.slice(6)) < 15)).toBe(true);
        // Only the first agent has nothing to go on.
        const [first, ...others] = chain.map(({ question }) => question.tokens);
        expect(new Set(others)).toEqual(new Set([first! + AGENT_TOKENS.finding]));
      }
      expect(new Set(requests.map(({ question }) => question.key)).size).toBe(requests.length);
      expect(createWorkload(name, { seed: 5, lengths })).toEqual({ name, preamble: expect.anything(), requests });
    }
  });

  it('finds more where agents read what they read before', () => {
    const [byRank, routed] = choices.map((name) =>
      simulate(createWorkload(name, { seed: 5 }), 'retrieval').reduce((sum, { cachedTokens }) => sum + cachedTokens, 0),
    );
    expect(routed).toBeGreaterThan(1.2 * byRank!);
  });

  it('takes questions without documents, with more of them than agents, and keeps who asked when', () => {
    const documents = Array.from({ length: 40 }, (_, number) => labDocument(`d${number}`, 10));
    const question = { key: 'q', tokens: 3 };
    const preamble = { key: 'p', tokens: 1 };
    const asked = [documents, [], documents.toReversed()].map((each, arrivalMs) => ({
      ...{ documents: each, question, session: 's', arrivalMs },
    }));
    const { requests } = chainOfAgents({ name: 'w', preamble, requests: asked }, 'read-before');
    expect(requests).toHaveLength(41 + 1 + 41);
    expect(requests[41]).toEqual({
      ...asked[1],
      question: { key: 'question 1', tokens: 3 },
      history: expect.anything(),
    });
    const agentOf = (at: number) => requests[at]!.history![0]!.key;
    // The same document again, the last one first: the same agent.
    expect(agentOf(42)).toBe(agentOf(39));
    expect(requests.every(({ session }) => session === 's')).toBe(true);
  });
});

describe('createWorkload', () => {
  it('gives a document the same length everywhere, between the bounds', () => {
    const lengths = new Map<string, number>();
    for (const { documents } of createWorkload('mixed', { seed: 3, lengths: 'unequal' }).requests) {
      for (const { key, tokens } of documents) {
        expect(lengths.get(key) ?? tokens).toBe(tokens);
        lengths.set(key, tokens);
      }
    }
    expect(Math.min(...lengths.values())).toBeGreaterThanOrEqual(64);
    expect(Math.max(...lengths.values())).toBeLessThanOrEqual(512);
    expect(new Set(lengths.values()).size).toBeGreaterThan(100);
  });

  it('names the nearest workload when there is none of that name', () => {
    expect(() => createWorkload('headlin', { seed: 1 })).toThrow(/did you mean `headline`/);
  });
});
