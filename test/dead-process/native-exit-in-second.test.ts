import { it } from 'vitest';

it('first', () => {});
// As native code exits, past vitest's own guard of `process.exit`.
it('second', () => (process as unknown as { reallyExit(code: number): void }).reallyExit(0));
it('third', () => {});
