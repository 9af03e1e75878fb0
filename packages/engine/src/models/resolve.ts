import type { ModelProgressListener } from './progress.js';

export interface ResolveModelOptions {
  readonly cacheDir?: string;
  readonly onProgress?: ModelProgressListener;
  readonly signal?: AbortSignal;
  readonly hubUrl?: string;
  readonly token?: string;
  readonly demoPath?: string;
}

export interface ResolvedModel {
  readonly path: string;
  readonly name: string;
  readonly kind: 'demo' | 'random' | 'file' | 'hub';
  readonly noise: boolean;
  readonly notice?: string;
}

export function resolveModel(spec: string | undefined, options: ResolveModelOptions = {}): Promise<ResolvedModel> {
  return Promise.resolve({ path: options.demoPath ?? '', name: spec ?? 'demo', kind: 'demo', noise: false });
}
