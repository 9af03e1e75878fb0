import type { ChildProcess, StdioOptions } from 'node:child_process';

export function findLlamaServer(environment?: NodeJS.ProcessEnv): string | undefined;
export function llamaServer(): Promise<string>;
export function spawnLlamaServer(path: string, flags: readonly string[], stdio?: StdioOptions): ChildProcess;
