import { Deployment } from 'kubernetes-models/apps/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { ConfigMap, Service } from 'kubernetes-models/v1';

const MODELS = { 'apps/v1': { Deployment }, 'policy/v1': { PodDisruptionBudget }, v1: { ConfigMap, Service } } as const;

/**
 * What a Kubernetes API server would refuse of a resource: the wrong types and what is missing, by its published
 * schemas, and fields that these do not name. `undefined` for kinds that are not its own.
 */
export function kubernetesErrors(resource: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const models: Readonly<Record<string, new (data: never) => { validate(): void }>> | undefined =
    MODELS[resource['apiVersion'] as keyof typeof MODELS];
  const Model = models?.[String(resource['kind'])];
  if (Model === undefined) return undefined;
  const unread = new Set<string>();
  try {
    // The compiled schemas read each field that they know.
    (watched(new Model(resource as never), '', unread) as { validate(): void }).validate();
  } catch (error) {
    return [(error as Error).message];
  }
  return [...unread].map((path) => `${path} is not known`);
}

/** The same value; `unread` has the paths of its fields that nobody has looked at. */
function watched(value: unknown, path: string, unread: Set<string>): unknown {
  if (typeof value !== 'object' || value === null) return value;
  const fields = new Map(Object.entries(value).map(([key, field]) => [key, watched(field, `${path}.${key}`, unread)]));
  for (const key of fields.keys()) unread.add(`${path}.${key}`);
  return new Proxy(value, {
    get(target, key) {
      unread.delete(`${path}.${String(key)}`);
      return fields.has(String(key)) ? fields.get(String(key)) : Reflect.get(target, key);
    },
  });
}
