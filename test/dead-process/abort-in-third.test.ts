import { it } from 'vitest';

it('first', () => {});
it('second', () => {});
it('third', () => process.abort());
