import { it } from 'vitest';

it('first', () => {});
// As the kernel ends a process when memory runs out.
it('second', () => new Promise(() => process.kill(process.pid, 'SIGKILL')));
it('third', () => {});
