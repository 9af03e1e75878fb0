import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fingerprint } from '../src/internal.js';
import { anyText } from './arbitraries.js';

test('16 hex digits, the same for the same parts', () => {
  fc.assert(
    fc.property(fc.array(anyText()), (parts) => {
      expect(fingerprint(parts)).toMatch(/^[0-9a-f]{16}$/);
      expect(fingerprint([...parts])).toBe(fingerprint(parts));
    }),
  );
});

test('the cut between parts counts', () => {
  expect(fingerprint(['ab', 'c'])).not.toBe(fingerprint(['a', 'bc']));
  expect(fingerprint(['', 'abc'])).not.toBe(fingerprint(['abc', '']));
  expect(fingerprint(['abc'])).not.toBe(fingerprint(['abc', '']));
});

test('lone surrogates are characters like any other', () => {
  expect(fingerprint(['\ud800'])).not.toBe(fingerprint(['\ud801']));
  expect(fingerprint(['\ud800'])).not.toBe(fingerprint(['\udc00']));
});

test('in long texts as well, every character counts, and lone surrogates tell them apart', () => {
  for (const text of [
    'a'.repeat(300),
    'é'.repeat(301),
    '日本'.repeat(6_000),
    '🦀'.repeat(4_099),
    `${'a'.repeat(16_383)}日`,
  ]) {
    const prints = new Set([fingerprint([text])]);
    const places = [0, 1, 2, 3, 255, 256, 257, text.length >> 1, text.length - 2, text.length - 1];
    for (const at of new Set(places)) {
      for (const other of ['b', 'ä', '語', '\ud801']) {
        prints.add(fingerprint([text.slice(0, at) + other + text.slice(at + 1)]));
      }
    }
    expect(prints.size).toBe(1 + 4 * new Set(places).size);
    expect(fingerprint([text])).toBe(fingerprint([`${text.slice(0, 100)}${text.slice(100)}`]));
    expect(fingerprint([`${text}\0`])).not.toBe(fingerprint([text]));
  }
});

test('100,000 texts that differ in a digit have different fingerprints, also when cut to 12 digits', () => {
  const whole = new Set<string>();
  const cut = new Set<string>();
  for (let i = 0; i < 100_000; i++) {
    const print = fingerprint(['', `Passage ${i} of the corpus.`]);
    whole.add(print);
    cut.add(print.slice(0, 12));
  }
  expect(whole.size).toBe(100_000);
  expect(cut.size).toBe(100_000);
});

test('every character counts, wherever it stands', () => {
  for (let length = 1; length <= 12; length++) {
    const prints = new Set([fingerprint(['a'.repeat(length)])]);
    for (let at = 0; at < length; at++) prints.add(fingerprint([`${'a'.repeat(at)}b${'a'.repeat(length - at - 1)}`]));
    expect(prints.size).toBe(length + 1);
  }
});

test('one changed bit changes each digit about 15 times in 16', () => {
  const changed = new Array<number>(16).fill(0);
  const trials = 4_000;
  for (let i = 0; i < trials; i++) {
    const text = `document number ${i}`;
    const at = i % text.length;
    const other = text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ (1 << (i % 8))) + text.slice(at + 1);
    const [a, b] = [fingerprint([text]), fingerprint([other])];
    for (let digit = 0; digit < 16; digit++) if (a[digit] !== b[digit]) changed[digit]! += 1;
  }
  for (const count of changed) expect(count / trials).toBeCloseTo(15 / 16, 1);
});
