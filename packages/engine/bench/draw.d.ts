export function seeded(seed: number): () => number;
export function quantile(numbers: readonly number[], share: number): number;
