import { expect, it } from 'vitest';
import { forcedCallReader } from '../../src/http/answer-form.js';

const ARGUMENTS = '{"what": {"a": "}"}}';

it.each([
  ['whole', `{"name": "find", "arguments": ${ARGUMENTS}}`, ARGUMENTS],
  ['without spaces', `{"name":"find","arguments":${ARGUMENTS}}`, ARGUMENTS],
  ['cut', '{"name": "find", "arguments": {"what": {"a": "}', '{"what": {"a": "}'],
  ['cut behind a brace of its own', '{"name": "find", "arguments": {"what": {"a": "}"}', '{"what": {"a": "}"}'],
])('a forced call is the same in pieces of any size: %s', (_, text, expected) => {
  for (let size = 1; size <= text.length; size++) {
    const reader = forcedCallReader();
    const pieces = Array.from({ length: Math.ceil(text.length / size) }, (_each, at) =>
      reader.push(text.slice(at * size, (at + 1) * size)),
    );
    const parts = [...pieces.flat(), ...reader.end()];
    expect(parts[0]).toMatchObject({ kind: 'call', call: { name: 'find' } });
    const told = parts.map((part) => (part.kind === 'call' ? part.call.arguments : part.text)).join('');
    expect(told).toBe(expected);
  }
});
