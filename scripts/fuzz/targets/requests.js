// Bodies of requests: the scanner beside JSON.parse, and what is read of them for the gateway.
import assert from 'node:assert/strict';
import { isUtf8 } from 'node:buffer';
import { WarmpathError } from '@warmpath/core';
import { chatApi, completionsApi, messagesApi, responsesApi } from '../../../packages/gateway/dist/apis/prompt-apis.js';
import { parseRequest } from '../../../packages/gateway/dist/intake/parse-request.js';
import { BodyView, readObject } from '../../../packages/gateway/dist/json/json-body.js';
import { JsonScanner } from '../../../packages/gateway/dist/json/json-scanner.js';

export const APIS = [chatApi, completionsApi, messagesApi, responsesApi];

const MESSAGES = [
  { role: 'system', content: 'Be brief.' },
  { role: 'user', content: 'What is a cache?' },
];
const DOCUMENTS = ['one text', { id: 'b', title: 'T', content: 'two "texts"\n', metadata: { a: [1, 2.5, null] } }];

/** What a call answers, or `undefined` where it refuses with an error of the table. */
export function refusable(call) {
  try {
    return call();
  } catch (error) {
    if (WarmpathError.isInstance(error)) return undefined;
    throw error;
  }
}

export function json() {
  return {
    seeds: ['{"a":[1,-2.5e3,true,null,"\\u00e9\\n"],"b":{"c":"x"}}', '[[],{}," "]', ' 0 ', '{"a":1,"a":2}', '"a'],
    run(bytes) {
      const span = refusable(() => new JsonScanner(bytes).root());
      const parsed = read(bytes.toString());
      // The scanner knows bytes and no text: of what is no UTF-8 there is no other reading to compare with.
      if (!isUtf8(bytes) || bytes[0] === 0xef) return;
      if (span === undefined) {
        assert(parsed === undefined || depthOf(parsed.value) > 200, 'JSON is refused');
        return;
      }
      if (parsed === undefined) {
        // Structure is the scanner's promise; what stands inside of strings is the engine's business.
        const hollow = bytes.toString().replaceAll(/"(?:[^"\\]|\\[\s\S])*"/g, '""');
        assert(read(hollow) !== undefined, 'what is no JSON is taken');
        return;
      }
      if (typeof parsed.value !== 'object' || parsed.value === null || Array.isArray(parsed.value)) return;
      const view = new BodyView(bytes);
      const keys = Object.keys(parsed.value);
      assert.deepEqual(new Set(view.members.map(({ key }) => key)), new Set(keys));
      for (const key of keys) assert.deepEqual(view.parse(key), parsed.value[key]);
      const [gone] = keys;
      if (gone === undefined) return;
      const { [gone]: _, ...rest } = parsed.value;
      const edited = read(applied(bytes, view.without(new Set([gone]))));
      assert.deepEqual({ ...edited?.value }, { ...rest });
      const added = read(applied(bytes, [view.with('added', '"x"')]));
      assert.deepEqual(added?.value.added, 'x');
    },
  };
}

export function request() {
  return {
    seeds: [
      { model: 'm', messages: MESSAGES, documents: DOCUMENTS },
      { model: 'm', messages: MESSAGES, documents: DOCUMENTS, warmpath: { session: 's', policy: 'exact', pin: ['b'] } },
      { model: 'm', prompt: 'Say it', documents: DOCUMENTS, warmpath: { bypass: true, forgotten: 'mark' } },
      { model: 'm', input: [{ role: 'user', content: [{ type: 'input_text', text: 'x' }] }], prompt_cache_key: 'k' },
      { model: 'm', max_tokens: 5, system: 'S', messages: MESSAGES, metadata: { user_id: 'u' }, documents: [] },
      { messages: MESSAGES, warmpath: { blocks: true, deduplicate: false }, user: 'u' },
    ].map((body) => JSON.stringify(body)),
    run(bytes) {
      refusable(() => readObject(bytes));
      for (const api of APIS) {
        for (const headers of [{}, { 'x-warmpath-session': 'named' }]) {
          const parsed = refusable(() =>
            parseRequest(bytes, api, { headers, caller: { endUser: undefined, bodyNamesEndUser: true }, all: true }),
          );
          if (parsed === undefined) continue;
          const { model, ownFields, documents, conversation } = parsed;
          assert.equal(typeof model, 'string');
          assert(conversation === undefined || conversation.session.length > 0, 'a conversation has no name');
          assert(documents === undefined || documents.end <= bytes.length, 'documents end behind the body');
          const given = isUtf8(bytes) && bytes[0] !== 0xef ? read(bytes.toString()) : undefined;
          if (given === undefined) continue;
          const sent = read(applied(bytes, ownFields))?.value;
          const { documents: _, warmpath: __, ...others } = given.value;
          if (parsed.bypass && given.value.documents !== undefined) others.documents = given.value.documents;
          assert.deepEqual({ ...sent }, { ...others });
        }
      }
    },
  };
}

function read(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

/** A text with spans of its bytes replaced. */
function applied(bytes, edits) {
  let from = 0;
  const parts = [];
  for (const { start, end, pieces } of edits) {
    parts.push(bytes.subarray(from, start), ...pieces.map((piece) => Buffer.from(piece)));
    from = end;
  }
  return Buffer.concat([...parts, bytes.subarray(from)]).toString();
}

function depthOf(value) {
  let depth = 0;
  for (let level = [value]; level.length > 0; depth++) {
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []));
  }
  return depth;
}
