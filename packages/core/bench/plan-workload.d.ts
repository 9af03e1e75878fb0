export interface BatchShape {
  readonly count: number;
  /** Documents of a context. */
  readonly k: number;
  readonly seed: number;
}

export function zipfContexts(options: BatchShape & { readonly documents: number }): string[][];
export function topicContexts(options: BatchShape): string[][];
