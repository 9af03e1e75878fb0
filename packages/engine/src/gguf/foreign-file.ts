interface Signature {
  readonly looksLike: string;
  readonly test: (front: Buffer, text: string) => boolean;
}

const SIGNATURES: readonly Signature[] = [
  { looksLike: 'the file is empty', test: (front) => front.length === 0 },
  {
    looksLike: 'it is a git-lfs pointer; the model itself was not fetched (run `git lfs pull`)',
    test: (_front, text) => text.startsWith('version https://git-lfs'),
  },
  {
    looksLike: 'it looks like a web page (HTML); the address led to a page about the model, not to its file',
    test: (_front, text) => /^\s*<(?:!doctype html|html|head|\?xml)/i.test(text),
  },
  { looksLike: 'it looks like a ZIP archive or a PyTorch checkpoint', test: (front) => startsWith(front, 0x50, 0x4b) },
  { looksLike: 'it is gzip-compressed', test: (front) => startsWith(front, 0x1f, 0x8b) },
  {
    looksLike: 'it is in a GGML format that came before GGUF; convert it or get a newer file',
    test: (_front, text) => ['lmgg', 'tjgg', 'fmgg', 'algg'].includes(text.slice(0, 4)),
  },
  {
    looksLike: 'it looks like a safetensors file; convert it with llama.cpp first',
    test: (front, text) => front.length > 9 && text[8] === '{' && front.readBigUInt64LE() < 100_000_000n,
  },
  { looksLike: 'it looks like JSON, perhaps an error message', test: (_front, text) => /^\s*[[{]/.test(text) },
  {
    looksLike: 'its first bytes are all zero, as in a download that did not finish',
    test: (front) => front.every((byte) => byte === 0),
  },
];

function startsWith(front: Buffer, ...bytes: readonly number[]): boolean {
  return bytes.every((byte, index) => front[index] === byte);
}

/**
 * Says in one clause what a file that is no GGUF looks like, from its first bytes (512 are plenty).
 * Shows no more of the content than its first four bytes, in hexadecimal.
 */
export function describeForeignFile(front: Buffer): string {
  const text = front.toString('latin1');
  const match = SIGNATURES.find(({ test }) => test(front, text));
  return match?.looksLike ?? `it starts with the bytes ${front.subarray(0, 4).toString('hex')} instead of "GGUF"`;
}
