export interface HostileRequest {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly body: Uint8Array<ArrayBuffer> | undefined;
}

export interface HostileBody {
  readonly name: string;
  readonly path: string;
  readonly make: (bytes: number) => Uint8Array<ArrayBuffer>;
}

export const HOSTILE: readonly HostileBody[];
export function mutatedRequest(next: () => number): HostileRequest;
export function isServersFault(answer: { readonly status: number; readonly text: string }): boolean;
