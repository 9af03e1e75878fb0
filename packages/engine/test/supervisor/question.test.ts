import { fork } from 'node:child_process';
import { once } from 'node:events';
import { expect, it } from 'vitest';
import { heldBytes } from '../../../../test/held-bytes.js';
import { isFull } from '../../../../test/suite.js';
import { questionTo } from '../../src/supervisor/worker.js';

it.runIf(isFull)(
  'keeps nothing of questions that a worker has answered, and knows at once that it is gone',
  async () => {
    const child = fork(new URL('../support/answers-questions.js', import.meta.url), { execArgv: [] });
    const exited = once(child, 'exit').then(() => ({ code: 0, signal: null }));
    const isAlive = questionTo({ process: child, exited });
    expect(await Promise.all([isAlive(), isAlive()])).toEqual([true, true]);
    const before = await heldBytes();
    for (let questions = 0; questions < 5_000; questions++) expect(await isAlive()).toBe(true);
    expect((await heldBytes()) - before).toBeLessThan(1_000_000);
    const last = isAlive();
    child.send({ type: 'end' });
    expect(await last).toBe(true);
    await exited;
    expect(await isAlive()).toBe(false);
  },
);

it('answers what is asked of a worker that ends instead', async () => {
  const child = fork(new URL('../support/answers-questions.js', import.meta.url), { execArgv: [] });
  const exited = once(child, 'exit').then(() => ({ code: 0, signal: null }));
  const isAlive = questionTo({ process: child, exited });
  child.send({ type: 'end' });
  expect(await Promise.all([isAlive(), isAlive()])).toEqual([false, false]);
});
