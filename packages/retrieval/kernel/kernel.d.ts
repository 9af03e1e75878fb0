export const KERNEL_TEXT: string;
/** The module's bytes. */
export function kernelBytes(): Promise<Uint8Array>;
