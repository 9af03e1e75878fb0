/** The name of a prompt prefix in the table of warm ones: what stands before the documents, for one tenant and model. */
export function prefixOf(tenant: string, model: string, preambleKey: string): string {
  return `${tenant}\n${model}\n${preambleKey}`;
}
