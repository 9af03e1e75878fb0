/**
 * Times the recogniser on prompts as they are, and on texts that would take a careless one the square of their length:
 * one and ten megabytes of each. Usage: node bench/recognise.js [--json]
 */
import { recognise } from '../dist/index.js';
import { HOSTILE, hostilePrompt } from './hostile-prompts.js';

const MEGABYTE = 1_000_000;
const SENTENCE =
  'The harbour was dredged so that ships could moor at the inner quay, and the clock was wound by hand. ';
const passage = SENTENCE.repeat(15);
const documents = Array.from({ length: 20 }, (_, i) => `<document id="p${i}">\n${passage}\n</document>`).join('\n');

/** Prompts of 30 KB: with documents, with none, with numbered ones. */
const PROMPTS = [
  ['30 KB, 20 tagged documents', `<documents>\n${documents}\n</documents>\nWhen?`],
  ['30 KB of prose', SENTENCE.repeat(300)],
  [
    '30 KB, 20 numbered passages',
    `Sources:\n${Array.from({ length: 20 }, (_, i) => `[${i + 1}] ${passage}`).join('\n')}\n\nWhen?`,
  ],
  [
    '30 KB of search results',
    JSON.stringify({ results: Array.from({ length: 20 }, (_, i) => ({ url: `u${i}`, content: passage })) }),
  ],
];

function milliseconds(texts, options, runs) {
  const times = [];
  for (let run = 0; run < runs; run++) {
    const start = process.hrtime.bigint();
    recognise(texts, options);
    times.push(Number(process.hrtime.bigint() - start) / 1e6);
  }
  return times.sort((a, b) => a - b)[times.length >> 1];
}

const prompts = PROMPTS.map(([name, text]) => ({
  name,
  characters: text.length,
  ms: milliseconds([{ role: 'tool', text }], { mode: 'form' }, 400),
}));
const hostile = HOSTILE.map((each) => {
  const [one, ten] = [MEGABYTE, 10 * MEGABYTE].map((length) => milliseconds(...hostilePrompt(each, length), 3));
  return { name: each[0], oneMegabyteMs: one, tenMegabytesMs: ten, factor: ten / one };
});
if (process.argv.includes('--json')) {
  process.stdout.write(`${JSON.stringify({ prompts, hostile })}\n`);
} else {
  for (const { name, ms } of prompts)
    process.stdout.write(`${name.padEnd(32)} ${(ms * 1000).toFixed(0).padStart(6)} µs\n`);
  for (const { name, oneMegabyteMs, tenMegabytesMs, factor } of hostile) {
    const figures = [oneMegabyteMs, tenMegabytesMs, factor].map((figure) => figure.toFixed(1).padStart(8));
    process.stdout.write(`${name.padEnd(32)} 1 MB ${figures[0]} ms   10 MB ${figures[1]} ms   × ${figures[2]}\n`);
  }
}
