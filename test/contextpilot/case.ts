/**
 * One conformance case: what a peer's users would have needed, by its number in the catalogue of
 * `contextpilot.test.ts`.
 */
export interface ConformanceCase {
  readonly number: number;
  readonly title: string;
  run(): void | Promise<void>;
}
