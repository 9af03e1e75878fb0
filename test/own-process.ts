import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** Ends a process that leads a group, and what it started. */
export async function stopGroup(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const over = once(child, 'exit');
  process.kill(-child.pid!, 'SIGTERM');
  await over;
}
