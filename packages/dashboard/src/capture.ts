/** What `GET /v1/capture` answers. */
export interface CaptureState {
  readonly object: 'capture';
  /** Prompts that are still to be captured. */
  readonly remaining: number;
  readonly captured: readonly { readonly id: string; readonly bytes: number }[];
  /** Bodies that did not fit into the memory for them. */
  readonly tooLarge: number;
}
