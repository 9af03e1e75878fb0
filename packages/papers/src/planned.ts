import { planBatch } from '@warmpath/core';
import type { Workload } from '@warmpath/lab';
import { ContextIndex } from './context-index.js';

/** Contexts that the context index clusters: its distance matrix then takes 32 MB. Later contexts are inserted. */
const MAX_CLUSTERED_CONTEXTS = 2000;

/** `combined`: core's `planBatch`. `context-index`: RAGBoost's clustering and schedule. */
export type PlanMethod = 'combined' | 'context-index';

export interface PlannedOptions {
  readonly method: PlanMethod;
  /** Whether requests come in the plan's order, too; else as they came. */
  readonly scheduled: boolean;
}

interface PlannedContext {
  /** Position of the context in the batch. */
  readonly index: number;
  /** Documents in prompt order. */
  readonly documents: readonly string[];
}

/** A workload known whole, with the documents of every request in a plan's order. */
export function planned(workload: Workload, { method, scheduled }: PlannedOptions): Workload {
  const { requests } = workload;
  const contexts = requests.map(({ documents }) => documents.map(({ id }) => id));
  const steps = method === 'combined' ? planBatch(contexts).steps : planByContextIndex(contexts);
  const order = scheduled ? steps : steps.toSorted((a, b) => a.index - b.index);
  return {
    ...workload,
    requests: order.map(({ index, documents }) => {
      const request = requests[index]!;
      const byId = new Map(request.documents.map((document) => [document.id, document]));
      return { ...request, documents: documents.map((id) => byId.get(id)!) };
    }),
  };
}

/** Orders a batch by RAGBoost's context index. Returns the contexts in the order of its schedule. */
export function planByContextIndex(contexts: readonly (readonly string[])[]): readonly PlannedContext[] {
  const numbers = new Map<string, number>();
  const ids: string[] = [];
  const numbered = contexts.map((context) =>
    context.map((id) => {
      const known = numbers.get(id);
      if (known !== undefined) return known;
      numbers.set(id, ids.length);
      return ids.push(id) - 1;
    }),
  );
  const index = new ContextIndex();
  const indexed = index.build(numbered.slice(0, MAX_CLUSTERED_CONTEXTS));
  for (const context of numbered.slice(MAX_CLUSTERED_CONTEXTS)) indexed.push(index.insert(context));
  return index.schedule().map((place) => ({
    index: place,
    documents: indexed[place]!.documents.map((number) => ids[number]!),
  }));
}
