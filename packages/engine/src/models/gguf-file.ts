import { open } from 'node:fs/promises';
import { WarmpathError } from '@warmpath/core';

const FRONT_BYTES = 512;

/** What a file that is no GGUF begins with, and what it is then. */
const LIKENESSES: readonly (readonly [RegExp, string])[] = [
  [/^$/, 'the file is empty'],
  [/^version https:\/\/git-lfs/, 'it is a git-lfs pointer; the model was not fetched (run `git lfs pull`)'],
  [/^\s*<(?:!doctype html|html|head|\?xml)/i, 'it is a web page (HTML); use the address of the file itself'],
  [/^PK/, 'it looks like a ZIP archive or a PyTorch checkpoint'],
  [/^(?:lmgg|tjgg|fmgg|algg)/, 'it is in a GGML format that came before GGUF; convert it or get a newer file'],
  [/^.{8}\{/s, 'it looks like a safetensors file; convert it with llama.cpp first'],
  [/^\s*[[{]/, 'it looks like JSON, perhaps an error message'],
];

/**
 * Checks that a file begins as GGUF files do. llama.cpp checks the rest when it loads the model.
 *
 * @param name What errors call the file.
 * @throws WARMPATH_MODEL_FILE with what is wrong: no file, a folder, another format.
 */
export async function checkGgufFile(path: string, name: string = path): Promise<void> {
  const refuse = (detail: string, cause?: unknown) =>
    new WarmpathError('WARMPATH_MODEL_FILE', { path: name, detail, cause });
  const front = await readFront(path).catch((cause: unknown) => {
    throw refuse(reasonOf(cause as NodeJS.ErrnoException), cause);
  });
  const text = front.toString('latin1');
  if (!text.startsWith('GGUF')) {
    const [, likeness] = LIKENESSES.find(([pattern]) => pattern.test(text)) ?? [];
    const start = `it starts with the bytes ${front.toString('hex', 0, 4)} instead of "GGUF"`;
    throw refuse(`not a GGUF file: ${likeness ?? start}`);
  }
}

/** Whether the file is there and begins as GGUF files do. */
export async function isGgufFile(path: string): Promise<boolean> {
  return checkGgufFile(path).then(
    () => true,
    () => false,
  );
}

async function readFront(path: string): Promise<Buffer> {
  const handle = await open(path, 'r');
  try {
    const { bytesRead, buffer } = await handle.read(Buffer.alloc(FRONT_BYTES), 0, FRONT_BYTES, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}

function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'there is no such file';
  if (code === 'EISDIR') return 'this is a folder, not a GGUF file';
  if (code === 'EACCES' || code === 'EPERM') return 'this process may not read the file';
  return `cannot be read: ${message}`;
}
