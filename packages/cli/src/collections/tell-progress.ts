import { timeLeft } from '@warmpath/lab';
import type { EmbeddingReport, IngestProgress } from '@warmpath/retrieval';
import type { CommandContext } from '../command-context.js';
import { EXIT_CODES } from '../exit-codes.js';
import type { Terminal } from '../terminal.js';

/** A line with the share that is done and the time left, on a terminal. `now`: milliseconds of a monotonic clock. */
export function showProgress(terminal: Pick<Terminal, 'status'>, now: () => number = () => performance.now()) {
  const startedAt = now();
  let readAt = startedAt;
  const share = (done: number, total: number) => (total === 0 ? 100 : Math.floor((100 * done) / total));
  return {
    update: ({ files, totalFiles, bytes, totalBytes }: IngestProgress) => {
      readAt = now();
      const left = timeLeft(readAt - startedAt, bytes, totalBytes);
      terminal.status(`  ${share(bytes, totalBytes)} %  ${files} of ${totalFiles} files  ${left}`);
    },
    // After all is read: the pace of reading says nothing of an endpoint's.
    embedded: (count: number, total: number) => {
      const left = timeLeft(now() - readAt, count, total);
      const passages = `${count.toLocaleString('en')} of ${total.toLocaleString('en')} passages embedded`;
      terminal.status(`  ${share(count, total)} %  ${passages}  ${left}`);
    },
    /** Of an import: documents, of all where that is known. */
    taken: (documents: number, total: number | undefined) => {
      readAt = now();
      const left = total === undefined ? '' : timeLeft(readAt - startedAt, documents, total);
      const known = total === undefined ? '' : `${share(documents, total)} %  `;
      const of = total === undefined ? '' : ` of ${total.toLocaleString('en')}`;
      terminal.status(`  ${known}${documents.toLocaleString('en')}${of} documents  ${left}`);
    },
    clear: () => terminal.status(''),
  };
}

/** Says what is wrong with the vectors of a collection. Passages without one set the exit code. */
export function tellMissingVectors(embedding: EmbeddingReport | undefined, context: CommandContext): void {
  if (embedding?.warning === undefined) return;
  const { code, message } = embedding.warning;
  if (code === 'WARMPATH_COLLECTION_VECTORS') {
    // All have theirs, and they are many.
    context.terminal.note(message);
    return;
  }
  context.terminal.note(`Not all passages have vectors: ${message}`);
  context.terminal.note('They are found by their words. The same command goes on where this one stopped.');
  context.exitCode = EXIT_CODES.failure;
}
