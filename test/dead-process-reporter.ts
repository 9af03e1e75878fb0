import type { RunnerTestCase, RunnerTestSuite } from 'vitest';
import { experimental_getRunnerTask, type Reporter, type TestModule, type Vite, type Vitest } from 'vitest/node';

/**
 * Reports a test that never ended as failed, and so its file. The process that ran it died, or never started; vitest
 * itself reports such a test as neither passed nor failed, and its file as passed.
 */
export function deadProcesses(): Vite.Plugin {
  return {
    name: 'dead-processes',
    configureVitest({ vitest }) {
      // First, so that the other reporters see failed tests.
      (vitest.config.reporters as unknown[]).unshift(new DeadProcessReporter(vitest));
    },
  };
}

class DeadProcessReporter implements Reporter {
  readonly #vitest: Vitest;

  constructor(vitest: Vitest) {
    this.#vitest = vitest;
  }

  onTestRunEnd(modules: readonly TestModule[], _errors: readonly unknown[], reason: string): void {
    if (reason === 'interrupted') return;
    for (const module of modules) {
      const unfinished = [...module.children.allTests('pending')].map(experimental_getRunnerTask);
      const isUnfinished = unfinished.length > 0 || module.state() === 'pending' || module.state() === 'queued';
      if (!isUnfinished) continue;
      for (const test of unfinished) this.#fail(test);
      this.#fail(experimental_getRunnerTask(module), unfinished.length === 0);
    }
  }

  #fail(task: RunnerTestCase | RunnerTestSuite, withReason = true): void {
    const errors = [{ name: 'Error', message: 'did not end: its process died, or never started', stacks: [] }];
    const result = { ...task.result, state: 'fail' as const, ...(withReason && { errors }) };
    this.#vitest.state.updateTasks([[task.id, result, task.meta]]);
  }
}
