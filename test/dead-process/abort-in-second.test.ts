import { it } from 'vitest';

it('first', () => {});
it('second', () => process.abort());
it('third', () => {});
