import type { WorkloadRequest } from '../workloads/workload.js';
import { invalid, JsonFields } from './json-fields.js';
import { readLines } from './lines.js';

/** Tokens that one hash id stands for. */
const BLOCK_TOKENS = 512;

/** A context window that no engine exceeds bounds the blocks of a request. */
const MAX_BLOCKS = 2 ** 15;

/**
 * A Mooncake trace: `{timestamp, input_length, output_length, hash_ids}` a line, in milliseconds and tokens; equal ids
 * stand for equal blocks of 512 tokens behind equal blocks, the last one partly filled. A request is a recorded prefix
 * with no documents: it tells caches apart, and there is nothing to reorder. Errors with line and path, also for a
 * length that does not fit the ids.
 */
export async function* mooncakeRequests(file: string): AsyncGenerator<WorkloadRequest> {
  let first: number | undefined;
  for await (const line of readLines(file)) {
    const fields = JsonFields.ofLine(line);
    const timestamp = fields.count('timestamp');
    first ??= timestamp;
    const ids = fields.list('hash_ids');
    if (ids.length > MAX_BLOCKS) throw invalid(fields.pathOf('hash_ids'), `at most ${MAX_BLOCKS} blocks are read`);
    const last = fields.count('input_length') - BLOCK_TOKENS * (ids.length - 1);
    if (ids.length === 0 || last < 1 || last > BLOCK_TOKENS) {
      throw invalid(
        fields.pathOf('input_length'),
        `${ids.length} blocks of ${BLOCK_TOKENS} tokens do not have that length`,
      );
    }
    yield {
      documents: [],
      history: ids.map((id, place) => ({
        key: `block ${String(id)}`,
        tokens: place === ids.length - 1 ? last : BLOCK_TOKENS,
      })),
      question: { key: 'nothing', tokens: 0 },
      answer: { key: `answer ${line.number}`, tokens: fields.count('output_length') },
      arrivalMs: Math.max(0, timestamp - first),
    };
  }
}
