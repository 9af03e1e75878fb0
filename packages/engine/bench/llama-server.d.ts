import type { ChildProcess, StdioOptions } from 'node:child_process';

export function findLlamaServer(environment?: NodeJS.ProcessEnv): string | undefined;
export function llamaServer(): Promise<string>;
export function spawnLlamaServer(path: string, flags: readonly string[], stdio?: StdioOptions): ChildProcess;
export function startLlamaServer(
  path: string,
  options: { readonly model: string; readonly port: number; readonly flags?: readonly string[] },
): { readonly child: ChildProcess; readonly url: Promise<string> };
