import { readFile } from 'node:fs/promises';
import { dataFile } from './data-folder.js';

/** Consecutive questions on one topic, as one person asks them while at work on it. */
export interface Burst {
  readonly topic: string;
  readonly questions: readonly string[];
}

export const WORKLOAD_NAMES = ['focused', 'broad'] as const;
/**
 * How much the questions of a burst have in common: `focused`, follow-up questions on one narrow subject; `broad`,
 * different sides of a whole task, which share few passages.
 */
export type WorkloadName = (typeof WORKLOAD_NAMES)[number];

/** The demo's questions about the corpus, twelve bursts of five, in the order in which they are asked. */
export async function readQuestions(workload: WorkloadName): Promise<readonly Burst[]> {
  const file = JSON.parse(await readFile(dataFile('questions.json'), 'utf8')) as Record<WorkloadName, readonly Burst[]>;
  return file[workload];
}
