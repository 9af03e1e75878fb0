import { it } from 'vitest';

process.abort();
it('first', () => {});
it('second', () => {});
it('third', () => {});
