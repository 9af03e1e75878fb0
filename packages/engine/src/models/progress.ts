/**
 * What happens while a model is made ready, for a progress bar. Sizes are in bytes. Events come often (one a chunk of
 * the network or of the file): a consumer that draws them limits its own rate.
 */
export type ModelProgress =
  | {
      /** A file is arriving from the hub; `bytes` counts what an earlier try left behind too. */
      readonly kind: 'download';
      readonly name: string;
      readonly bytes: number;
      /** `undefined` until the hub says how long the file is. */
      readonly totalBytes: number | undefined;
    }
  | {
      /** The bytes on disk are being compared with the hub's SHA-256. */
      readonly kind: 'verify';
      readonly name: string;
      readonly bytes: number;
      readonly totalBytes: number;
    }
  | {
      /** The transfer broke and is tried again after `delayMs`. */
      readonly kind: 'retry';
      readonly name: string;
      /** Failures in a row without a byte gained, counted from 1. */
      readonly failures: number;
      readonly delayMs: number;
      readonly reason: string;
    }
  | {
      /** Another process downloads the same file; this one waits for it. Sent once. */
      readonly kind: 'wait';
      readonly name: string;
    };

/** Receives every {@link ModelProgress}. An exception that it throws ends the work in hand. */
export type ModelProgressListener = (event: ModelProgress) => void;
