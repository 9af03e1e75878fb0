import { it } from 'vitest';

it('first', () => {});
it('second', () => process.exit(0));
it('third', () => {});
