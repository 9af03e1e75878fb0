import { Encoder } from '@msgpack/msgpack';
import type { KvEvent } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { runs } from '../../../../test/suite.js';
import { decodeBatch, noDecodeAnomalies } from '../../src/engines/kv-events/decode-batch.js';
import { hasTrueLengths } from '../../src/engines/kv-events/true-lengths.js';
import '../../../core/test/seed.js';

const encoder = new Encoder({ useBigInt64: true });

/** Above what a double holds. */
const HASH = 13_704_290_724_022_118_954n;
const HASH_TEXT = HASH.toString(16);
const DIGEST = Uint8Array.from({ length: 32 }, (_, byte) => byte * 7);

function read(batch: unknown): { events: KvEvent[]; anomalies: ReturnType<typeof noDecodeAnomalies> } {
  const anomalies = noDecodeAnomalies();
  return { events: decodeBatch(encoder.encode(batch), anomalies), anomalies };
}

/** One event in the batch that its version writes. */
function readOne(event: unknown): KvEvent | undefined {
  const { events, anomalies } = read([1.5, [event], 0]);
  expect(anomalies).toEqual(noDecodeAnomalies());
  return events[0];
}

const STORED = {
  kind: 'stored',
  tier: 'device',
  hashes: [HASH_TEXT, '2'],
  parent: undefined,
  tokens: [1, 2, 3, 4],
  blockSize: 2,
};

describe('batches of KV events', () => {
  test.each<[string, unknown, object]>([
    ['vLLM up to 0.9', ['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, null], STORED],
    [
      'vLLM 0.11, with a medium',
      ['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, null, 'CPU'],
      { ...STORED, tier: 'host' },
    ],
    [
      'vLLM with extra keys, group and kind',
      ['BlockStored', [HASH, 2], 7n, [1, 2, 3, 4], 2, null, 'GPU', null, [['salt'], null], 0, 'full_attention', null],
      { ...STORED, parent: '7', extras: ['salt', undefined] },
    ],
    [
      'vLLM since June 2026, optional fields left out',
      {
        type: 'BlockStored',
        block_hashes: [HASH, 2],
        parent_block_hash: null,
        token_ids: [1, 2, 3, 4],
        block_size: 2,
        lora_id: null,
        medium: 'GPU',
        lora_name: null,
      },
      STORED,
    ],
    [
      'vLLM, with fields of tomorrow',
      {
        type: 'BlockStored',
        block_hashes: [HASH, 2],
        parent_block_hash: null,
        token_ids: [1, 2, 3, 4],
        block_size: 2,
        locality: 'LOCAL',
        storage_tier: 3,
        session_id: 'x',
      },
      STORED,
    ],
    [
      'vLLM with hashes as bytes',
      ['BlockStored', [DIGEST], DIGEST, [1, 2], 2, null],
      { ...STORED, hashes: [hex(DIGEST)], parent: hex(DIGEST), tokens: [1, 2] },
    ],
    [
      'vLLM with an adapter and no extra keys',
      ['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, 5, 'GPU', 'sql'],
      { ...STORED, extras: ['sql', undefined], adapter: 'sql' },
    ],
    [
      'vLLM with an adapter and extra keys, which name it in every block',
      ['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, 5, 'GPU', 'sql', [['sql', 'salt'], ['sql']], 0],
      { ...STORED, extras: ['sql\nsalt', undefined], adapter: 'sql' },
    ],
    [
      'the same, behind a block',
      ['BlockStored', [HASH, 2], 7, [1, 2, 3, 4], 2, 5, 'GPU', 'sql', [['sql', 'image'], ['sql']], 0],
      { ...STORED, parent: '7', extras: ['image', undefined], adapter: 'sql' },
    ],
    [
      'a connector that moves a block',
      ['BlockStored', [HASH], null, [], 0, null, 'DISK'],
      { ...STORED, tier: 'disk', hashes: [HASH_TEXT], tokens: [], blockSize: 0 },
    ],
    [
      'SGLang up to 0.5.17, signed hashes',
      ['BlockStored', [-1n, 2], null, [1, 2, 3, 4], 2, null, 'CPU_PINNED'],
      { ...STORED, hashes: ['ffffffffffffffff', '2'], tier: 'host' },
    ],
    [
      'SGLang 0.5.18, with a salt',
      ['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, null, 'GPU', { cache_salt: 'a' }],
      { ...STORED, extras: ['a', undefined], scope: 'a' },
    ],
    [
      'SGLang since September 2026',
      {
        type: 'BlockStored',
        block_hashes: [HASH, 2],
        parent_block_hash: 9,
        token_ids: [1, 2, 3, 4],
        block_size: 2,
        cache_salt: 'a',
        session_id: 'b',
      },
      { ...STORED, parent: '9', scope: 'a' },
    ],
    [
      'SGLang with pairs of tokens',
      [
        'BlockStored',
        [HASH, 2],
        null,
        [
          [1, 2],
          [2, 3],
          [3, 4],
          [4, 5],
        ],
        2,
        null,
      ],
      STORED,
    ],
    ['removed, up to 0.9', ['BlockRemoved', [HASH]], { kind: 'removed', tier: 'device', hashes: [HASH_TEXT] }],
    [
      'removed, with medium and group',
      ['BlockRemoved', [HASH], 'CPU', 0],
      { kind: 'removed', tier: 'host', hashes: [HASH_TEXT] },
    ],
    [
      'removed, with the copies that are left',
      { type: 'BlockRemoved', block_hashes: [HASH], medium: 'GPU', remaining_copy_counts: [3] },
      { kind: 'removed', tier: 'device', hashes: [HASH_TEXT], copiesLeft: [3] },
    ],
    ['cleared', ['AllBlocksCleared'], { kind: 'cleared' }],
    ['cleared, tagged', { type: 'AllBlocksCleared' }, { kind: 'cleared' }],
  ])('%s', (_, event, expected) => {
    expect(readOne(event)).toEqual(expected);
  });

  test('as a map, and without a rank', () => {
    expect(read({ ts: 1, events: [['AllBlocksCleared']] }).events).toEqual([{ kind: 'cleared' }]);
    expect(read([1, [['AllBlocksCleared']]]).events).toEqual([{ kind: 'cleared' }]);
  });

  test.each<[string, unknown]>([
    ['another group', ['BlockStored', [1], null, [1, 2], 2, null, 'GPU', null, null, 1]],
    [
      'a sliding window',
      {
        type: 'BlockStored',
        block_hashes: [1],
        token_ids: [1, 2],
        block_size: 2,
        kv_cache_spec_kind: 'sliding_window',
      },
    ],
    ['removed of another group', ['BlockRemoved', [1], 'GPU', 2]],
  ])('%s is left out and counted', (_, event) => {
    const { events, anomalies } = read([1, [event, ['AllBlocksCleared']], 0]);
    expect(events).toEqual([{ kind: 'cleared' }]);
    expect(anomalies).toEqual({ ...noDecodeAnomalies(), otherGroups: 1 });
  });

  test('an adapter that has a number and no name is counted', () => {
    const { events, anomalies } = read([1, [['BlockStored', [HASH, 2], null, [1, 2, 3, 4], 2, 5]], 0]);
    expect(events).toEqual([{ ...STORED, extras: ['lora:5', undefined] }]);
    expect(anomalies).toEqual({ ...noDecodeAnomalies(), unnamedAdapters: 1 });
  });

  test('a kind of tomorrow costs itself, not its batch', () => {
    const { events, anomalies } = read([1, [['BlockMoved', [1], 2], ['AllBlocksCleared']], 0]);
    expect(events).toEqual([{ kind: 'cleared' }]);
    expect(anomalies).toEqual({ ...noDecodeAnomalies(), unknown: 1 });
  });

  test.each<[string, unknown]>([
    ['no event', 17],
    ['nothing', null],
    ['a kind that is none', [7, [1]]],
    ['hashes that are none', ['BlockStored', ['x'], null, [1, 2], 2, null]],
    ['an unsafe number as hash', ['BlockRemoved', [1.5]]],
    ['no hashes', ['BlockRemoved']],
    ['a medium that is none', ['BlockRemoved', [1], 3]],
    ['a group that is none', ['BlockRemoved', [1], 'GPU', 'x']],
    ['copies of other blocks', { type: 'BlockRemoved', block_hashes: [1], remaining_copy_counts: [1, 2] }],
    ['copies that are none', { type: 'BlockRemoved', block_hashes: [1], remaining_copy_counts: ['x'] }],
    ['a parent that is none', ['BlockStored', [1], 'x', [1, 2], 2, null]],
    ['tokens that are none', ['BlockStored', [1], null, ['x', 2], 2, null]],
    ['no block size', ['BlockStored', [1], null, [1, 2], 'x', null]],
    ['another block size', ['BlockStored', [1], null, [1, 2], 3, null]],
    ['a name that is none', ['BlockStored', [1], null, [1, 2], 2, null, 'GPU', 4]],
    ['extra keys that are none', ['BlockStored', [1], null, [1, 2], 2, null, 'GPU', null, ['x']]],
    [
      'a salt that is none',
      { type: 'BlockStored', block_hashes: [1], token_ids: [1, 2], block_size: 2, cache_salt: 4 },
    ],
  ])('%s costs itself, not its batch, and is told from what is not known', (_, event) => {
    const { events, anomalies } = read([1, [event, ['AllBlocksCleared']], 0]);
    expect(events).toEqual([{ kind: 'cleared' }]);
    expect(anomalies).toEqual({ ...noDecodeAnomalies(), unreadable: 1 });
  });

  test('lengths that cannot be true make no room', () => {
    // 12 arrays, each the first element of the one before, that say they have 32 million elements.
    const nested = Buffer.concat(Array.from({ length: 12 }, () => Buffer.from('dd01ffffff', 'hex')));
    // The same of 170,000 arrays with 65,535 elements.
    const deep = Buffer.alloc(3 * 170_000, Buffer.from('dcffff', 'hex'));
    const map = Buffer.from('dfffffffff', 'hex');
    for (const bytes of [nested, deep, map]) {
      const before = process.memoryUsage().rss;
      const anomalies = noDecodeAnomalies();
      expect(decodeBatch(bytes, anomalies)).toEqual([]);
      expect(anomalies).toEqual({ ...noDecodeAnomalies(), undecodable: 1 });
      expect(process.memoryUsage().rss - before).toBeLessThan(100e6);
    }
  });

  test('every length that a MessagePack encoder writes is true, and none is with a byte less', () => {
    const value = fc.anything({
      withBigInt: false,
      withTypedArray: false,
      values: [
        fc.integer(),
        fc.double(),
        fc.boolean(),
        fc.constant(null),
        fc.string({ size: 'large' }),
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 64n - 1n }),
        fc.uint8Array({ size: 'large' }),
        fc.date({ noInvalidDate: true }),
        fc.array(fc.nat(200), { minLength: 0, maxLength: 400 }),
      ],
      key: fc.string().filter((key) => key !== '__proto__'),
    });
    fc.assert(
      fc.property(value, (given) => {
        const bytes = encoder.encode(given);
        expect(hasTrueLengths(bytes)).toBe(true);
        expect(hasTrueLengths(bytes.subarray(0, -1))).toBe(false);
      }),
    );
  });

  test('never throws, whatever comes', () => {
    const anomalies = noDecodeAnomalies();
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(Array.isArray(decodeBatch(bytes, anomalies))).toBe(true);
      }),
      { numRuns: runs(20_000) },
    );
    // The decoder refuses a batch in which anything has this name.
    const value = fc.jsonValue().filter((each) => !JSON.stringify(each).includes('__proto__'));
    fc.assert(
      fc.property(value, value, (event, other) => {
        const { events } = read([1, [event, other, ['AllBlocksCleared']], 0]);
        expect(events.at(-1)).toEqual({ kind: 'cleared' });
      }),
      { numRuns: runs(2_000) },
    );
    expect(anomalies.undecodable).toBeGreaterThan(0);
  });
});

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}
