import type { Reporter, TestModule } from 'vitest/node';

/** Ends a run with one plain line, «N passed, N failed, N skipped», for whoever reads the log without colours. */
export class PlainSummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0, pending: 0 };
    for (const module of modules) {
      for (const test of module.children.allTests()) counts[test.result().state] += 1;
      if (module.errors().length > 0) counts.failed += 1;
    }
    process.stdout.write(
      `\n${counts.passed} passed, ${counts.failed + counts.pending} failed, ${counts.skipped} skipped\n`,
    );
  }
}
