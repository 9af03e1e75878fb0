import { it } from 'vitest';

it('first', () => {});
it('second', () => {});
it('third', () => void setImmediate(() => process.abort()));
