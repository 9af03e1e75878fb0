import { type PlanMethod, planBatch } from '@warmpath/core';
import type { Workload } from '@warmpath/lab';

export interface PlannedOptions {
  readonly method: PlanMethod;
  /** Whether requests come in the plan's order, too; else as they came. */
  readonly scheduled: boolean;
}

/** A workload known whole, with the documents of every request in a plan's order. Cost: that of `planBatch`. */
export function planned(workload: Workload, { method, scheduled }: PlannedOptions): Workload {
  const { requests } = workload;
  const { steps } = planBatch(
    requests.map(({ documents }) => documents.map(({ id }) => id)),
    { method },
  );
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
