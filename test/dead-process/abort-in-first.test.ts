import { it } from 'vitest';

it('first', () => process.abort());
it('second', () => {});
it('third', () => {});
