import type { ChildProcess } from 'node:child_process';

export function findLlamaServer(environment?: NodeJS.ProcessEnv): string | undefined;
export function llamaServer(): string;
export function startLlamaServer(
  path: string,
  options: { readonly model: string; readonly port: number; readonly flags?: readonly string[] },
): { readonly child: ChildProcess; readonly url: Promise<string> };
