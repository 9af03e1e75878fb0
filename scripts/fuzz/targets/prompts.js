// Texts in which documents are looked for: by core, and in whole bodies by the gateway.
import assert from 'node:assert/strict';
import { recognise, rewriteText } from '@warmpath/core';
import { formedBlocks, markedBlocks, recogniseRequest } from '../../../packages/gateway/dist/prompt/find-documents.js';
import { APIS, refusable } from './requests.js';

const TEXTS = [
  '<documents>\n<document index="1">\nA cache\n</document>\n<document index="2">\nA tree\n</document>\n</documents>',
  'Context:\n\n[1] A cache holds things.\n\n[2] A tree has nodes.\n\n[3] A queue waits.\n\nQuestion: which [2]?',
  'Document 1: one\n\nDocument 2: two\n\nDocument 3: three\n\nAnswer from the documents.',
  '[{"id":"a","content":"one"},{"id":"b","content":"two"},{"id":"c","content":"three"}]',
  "[Document(page_content='one', metadata={'source': 'a'}), Document(page_content='two', metadata={})]",
  '<warmpath-documents>one\n---\ntwo\n---\nthree</warmpath-documents>',
  'Title: A\nContent: one\n\nTitle: B\nContent: two\n\nTitle: C\nContent: three',
  '## Cache\n\nholds\n\n## Tree\n\ngrows\n\n## Queue\n\nwaits\n',
];
const ROLES = ['user', 'system', 'tool', 'assistant'];

export function recogniser() {
  return {
    seeds: TEXTS,
    run(bytes) {
      // A sign that no text holds divides the input into the texts of a prompt.
      const parts = bytes.toString().split('\u0001', 4);
      const texts = parts.map((text, place) => ({ role: ROLES[place], text }));
      for (const mode of ['marked', 'form']) checkBlocks(texts, recognise(texts, { mode }));
      const list = recognise([{ role: 'user', text: parts[0], kind: 'elements' }], { mode: 'form' });
      checkBlocks([{ text: parts[0] }], list);
    },
  };
}

function checkBlocks(texts, blocks) {
  for (const block of blocks) {
    let from = block.start;
    for (const { start, end, contentStart, contentEnd, labels } of block.documents) {
      assert(from <= start && start < end && end <= block.end, 'documents lie upon each other');
      assert(start <= contentStart && contentStart <= contentEnd && contentEnd <= end, 'content outside its document');
      for (const label of labels) assert(start <= label.start && label.end <= end, 'a label outside its document');
      from = end;
    }
    assert(block.end <= texts[block.text].text.length, 'a block ends behind its text');
  }
  for (const [index, { text }] of texts.entries()) {
    const own = blocks.filter((block) => block.text === index);
    const orders = own.map((block) => ({ block, order: block.documents.map((_, rank) => rank) }));
    assert.equal(rewriteText(text, orders), text);
    const turned = rewriteText(
      text,
      orders.map(({ block, order }) => ({ block, order: order.toReversed() })),
    );
    assert.equal(sorted(turned), sorted(text), 'a text loses something when it is written anew');
  }
}

const sorted = (text) => text.split('').sort().join('');

export function found() {
  const bodies = TEXTS.flatMap((text) => [
    { model: 'm', messages: [{ role: 'user', content: text }] },
    { model: 'm', messages: [{ role: 'user', content: [{ type: 'text', text }] }], system: text },
    { model: 'm', input: [{ role: 'user', content: [{ type: 'input_text', text }] }], instructions: 'i' },
    { model: 'm', prompt: text },
  ]);
  bodies.push({
    messages: [
      { role: 'user', content: 'q' },
      { role: 'assistant', tool_calls: [{ id: '1', function: { name: 'f', arguments: '{}' } }] },
      { role: 'tool', tool_call_id: '1', content: TEXTS[3] },
    ],
  });
  return {
    seeds: bodies.map((body) => JSON.stringify(body)),
    run(bytes) {
      for (const api of APIS) {
        for (const find of [markedBlocks, (texts) => formedBlocks(texts, { refersToParts: true })]) {
          const found = refusable(() => recogniseRequest(bytes, api, { find, markerKey: 'key' }));
          if (found === undefined) continue;
          const { texts, messages } = found;
          const blocks = messages.flatMap((message) => message.blocks);
          for (const block of blocks) assert(block.end <= texts[block.text].text.length);
        }
      }
    },
  };
}
