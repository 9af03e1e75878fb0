import { arrange, prepareRequest, renderHint, ServedHistory } from '@warmpath/core';
import { ConversationLog, SeenSegments } from '@warmpath/core/internal';
import { expect } from 'vitest';
import { copies, Pipeline } from '../../packages/core/test/conversation-model.js';
import { prefixOf, WarmPrefixes } from '../../packages/gateway/src/memory/served-histories.js';
import type { ConformanceCase } from './case.js';

const user = (content: string) => ({ role: 'user', content });
const said = (content: string) => ({ role: 'assistant', content });
const text = (id: number) => ({ id: `doc-${id}`, content: `The whole text of document ${id}.` });
const NAMED = { tenant: 'us', session: 'one' };

/** A file of so many lines, no two alike. */
function file(name: string, lines = 120): string {
  return Array.from({ length: lines }, (_, i) => `export const ${name}${i} = compute("${name}", ${i * i});\n`).join('');
}

/** Conversations: what is shown already, what was sent, and whose it is. */
export const sessionCases: readonly ConformanceCase[] = [
  {
    number: 12,
    title:
      'a conversation of [4, 3, 1] and then [4, 3, 2]: 4 and 3 are referred to, 2 is new; another conversation is none the wiser',
    run: () => {
      const pipeline = new Pipeline();
      const first = [user('Q1')];
      pipeline.serve(NAMED, first, [4, 3, 1].map(text), said('R1'));
      const second = [...first, said('R1'), user('Q2')];
      const { prompt, references } = pipeline.serve(NAMED, second, [4, 3, 2].map(text), said('R2'));
      expect(references).toBe(2);
      expect(prompt[2]!.content).toContain('Given earlier in this conversation: [doc-4], [doc-3].');
      expect(prompt[2]!.content).toContain(text(2).content);
      const third = pipeline.serve(NAMED, [...second, said('R2'), user('Q3')], [1, 2].map(text), said('R3'));
      expect(third.prompt[4]!.content).toBe('Given earlier in this conversation: [doc-1], [doc-2].\nQ3');
      expect(pipeline.serve({ ...NAMED, session: 'two' }, second, [4].map(text), said('R')).references).toBe(0);
      const { documents } = prepareRequest({ documents: [text(4)] });
      const visible = {
        find: () => ({ hash: '', label: 'doc-4', ...text(4), title: undefined }),
        namesOther: () => false,
      };
      const arrangement = arrange({ documents, visible }, new ServedHistory(), 0);
      expect(renderHint(arrangement, 'xml')).toBe('Given earlier in this conversation: [doc-4].\n');
    },
  },
  {
    number: 20,
    title:
      'turns 1 to 4 with overlapping results: every text stands there exactly once, and what was sent never changes',
    run: () => {
      const pipeline = new Pipeline();
      const messages = [user('Q1')];
      let sent: readonly unknown[] = [];
      for (const [turn, ids] of [
        [1, 2, 3],
        [3, 2, 4],
        [4, 1, 5],
        [5, 4, 3, 2, 1],
      ].entries()) {
        const served = pipeline.serve(NAMED, messages, ids.map(text), said(`R${turn}`));
        for (const id of [1, 2, 3, 4, 5].slice(0, 3 + turn)) expect(copies(served, text(id)), `${turn}: ${id}`).toBe(1);
        expect(served.prompt.slice(0, sent.length)).toEqual(sent);
        sent = served.prompt;
        messages.push(said(`R${turn}`), user(`Q${turn + 2}`));
      }
    },
  },
  {
    number: 21,
    title: 'fewer messages than before: nothing is taken for shown; two users with equal opening turns are independent',
    run: () => {
      const pipeline = new Pipeline();
      pipeline.serve(NAMED, [user('Q1')], [text(1)], said('R1'));
      pipeline.serve(NAMED, [user('Q1'), said('R1'), user('Q2')], [text(2)], said('R2'));
      const cut = pipeline.serve(NAMED, [user('Q2')], [1, 2].map(text), said('R'));
      expect([cut.references, copies(cut, text(1)), copies(cut, text(2))]).toEqual([0, 1, 1]);
      const [ann, bob] = ['ann', 'bob'].map((name) => ({ ...NAMED, user: name }));
      pipeline.serve(ann!, [user('Hello')], [text(1)], said('To both.'));
      pipeline.serve(bob!, [user('Hello')], [text(2)], said('To both.'));
      const messages = [user('Hello'), said('To both.'), user('Q')];
      const second = pipeline.serve(bob!, messages, [1, 2].map(text), said('R'));
      expect(second.references).toBe(1);
      expect(second.prompt[0]!.content).toContain(text(2).content);
      expect(second.prompt[0]!.content).not.toContain(text(1).content);
      for (const name of [NAMED, { ...bob!, tenant: 'them' }, { ...bob!, session: 'other' }]) {
        const stranger = pipeline.serve(name, messages, [text(2)], said('R'));
        expect([stranger.references, stranger.isForgotten]).toEqual([0, true]);
      }
    },
  },
  {
    number: 22,
    title: 'a second copy becomes shorter and points backward; the first one stays to the byte',
    run: () => {
      const seen = new SeenSegments();
      const first = file('a');
      expect(seen.shorten(first).text).toBe(first);
      seen.add(first);
      const second = seen.shorten(first);
      expect(second.text.length).toBeLessThan(first.length / 5);
      expect(second.text).toContain('Given earlier in this conversation: [«');
    },
  },
  {
    number: 23,
    title:
      'a changed character survives to the letter, the other blocks are still known, and an unrelated file is left alone',
    run: () => {
      const seen = new SeenSegments();
      const first = file('a');
      seen.add(first);
      const changed = first.replace('compute("a", 3600)', 'compute("b", 3600)');
      const shortened = seen.shorten(changed);
      expect(shortened.text).toContain('compute("b", 3600)');
      expect(shortened.text.length).toBeLessThan(changed.length / 2);
      expect(seen.shorten(file('z'))).toMatchObject({ text: file('z'), replaced: 0 });
    },
  },
  {
    number: 24,
    title: 'what was not used for five minutes is cold, a use renews it, and what is remembered longer outlives six',
    run: () => {
      const P = prefixOf('t', 'm', 'p');
      const prefixes = new WarmPrefixes(10_000, 300_000);
      prefixes.touch(P, 0);
      expect([
        prefixes.isWarm(P, 300_000),
        prefixes.isWarm(P, 300_001),
        prefixes.isWarm(prefixOf('t', 'm', 'q'), 0),
      ]).toEqual([true, false, false]);
      prefixes.touch(P, 200_000);
      expect(prefixes.isWarm(P, 500_000)).toBe(true);
      for (const [maxAgeMs, known] of [
        [300_000, 0],
        [3_600_000, 1],
      ] as const) {
        const pipeline = new Pipeline({ limits: { maxAgeMs } });
        pipeline.serve(NAMED, [user('Q1')], [text(1)], said('R1'));
        pipeline.now = 360_000;
        const messages = [user('Q1'), said('R1'), user('Q2')];
        expect(pipeline.serve(NAMED, messages, [text(1)], said('R2')).references).toBe(known);
      }
      const log = new ConversationLog({ maxAgeMs: 10 });
      log.answered(NAMED, { link: 'l', id: 'gone' }, 'a', 0);
      expect([log.turns, log.size]).toEqual([0, 0]);
    },
  },
];
