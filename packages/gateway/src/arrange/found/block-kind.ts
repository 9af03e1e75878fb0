import type { DocumentBlock } from '@warmpath/core';

/** Whether there is an order to decide about: a tool's result is one document. */
export function isOrdered({ format }: Pick<DocumentBlock, 'format'>): boolean {
  return format !== 'result';
}
