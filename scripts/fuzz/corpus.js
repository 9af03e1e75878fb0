// The inputs that were worth keeping: a file for each target, an input a line, the shortest first. Text as JSON, other
// bytes in base64.
import { isUtf8 } from 'node:buffer';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

const fileOf = (target) => new URL(`./corpus/${target}.jsonl`, import.meta.url);

export function corpusInputs(target) {
  const file = fileOf(target);
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => {
    const { text, base64 } = JSON.parse(line);
    return text === undefined ? Buffer.from(base64, 'base64') : Buffer.from(text);
  });
}

export function writeCorpus(target, inputs) {
  writeFileSync(fileOf(target), inputs.map((input) => `${lineOf(input)}\n`).join(''));
}

export function lineOf(input) {
  return JSON.stringify(isUtf8(input) ? { text: input.toString() } : { base64: input.toString('base64') });
}
