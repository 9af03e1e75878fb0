// What another gateway, or somebody else, wrote into the shared store, and what is sent to an engine because of it.
import assert from 'node:assert/strict';
import { readSessionEntry } from '@warmpath/core/internal';
import { readRecord, renderingsOf, scopeOf, writeRecord } from '../../../packages/redis/dist/stored-turns.js';
import { refusable } from './requests.js';

const NAME = { tenant: 't', user: undefined, session: 's' };
const TURN = {
  link: 'l',
  id: 'i',
  supplied: 'h',
  length: 2,
  tail: 0,
  order: ['a'],
  answers: ['x'],
  edits: [{ at: 0, add: 'text-before', text: 'one' }],
  documents: [{ print: 'p', label: 'a', content: 'one', title: 'T' }],
  steps: [{ key: 'k', tokens: 3 }],
};

export function redisRecords() {
  const scope = scopeOf(NAME);
  return {
    seeds: [writeRecord(NAME, TURN), JSON.stringify(['i', 'x y', writeRecord(NAME, TURN)])],
    run(bytes) {
      const record = bytes.toString();
      const found = readRecord({ id: 'i', answers: [], record }, { scope, link: 'l' });
      if (found !== undefined) {
        assert.equal(scopeOf(found.name), scope);
        assert.notEqual(writeRecord(found.name, found.turn), '');
      }
      const value = read(record);
      refusable(() => readSessionEntry(value));
      if (Array.isArray(value)) renderingsOf(value);
    },
  };
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
