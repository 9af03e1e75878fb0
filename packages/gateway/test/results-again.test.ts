import { arrange, observe, ServedHistory } from '@warmpath/core';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { chatApi } from '../src/apis/prompt-apis.js';
import { ConversationMemory, MemoryConversationStore } from '../src/conversation/conversation-memory.js';
import { explainRequest } from '../src/operate/explain/explain-request.js';
import { arrangeInPlace, permuted, rememberOrders } from '../src/prompt/arrange-in-place.js';
import { formedBlocks, recogniseRequest } from '../src/prompt/find-documents.js';
import { type Message, write } from './agent-conversations.js';
import { answerAsAsked } from './fake-engine.js';
import { send, stand, told } from './harness.js';

const SEED = 20_261_122;
const REFERENCE = /Given earlier in this conversation: \[«(.*?) … (.*?)»\]\./g;

/** A file as a tool reads it; `edited` is a line of it that was changed. */
const file = (name: string, edited = -1) =>
  Array.from({ length: 40 }, (_, i) =>
    i === edited
      ? `  ${name}.changed(${i}); // 変更 ${name} 🐚\n`
      : `  const ${name}${i} = await compute("${name}", ${i * i}); // step ${i} of ${name}\n`,
  ).join('');
const FILES = [file('alpha'), file('alpha', 20), file('beta'), JSON.stringify({ rows: file('gamma').split('\n') })];
/** Shorter than is worth a reference. */
const STATUS = '{"status": "pending", "exit": 0}';
const PAGES = ['pier', 'mill', 'well'].map((id) => ({
  id,
  text: `${Array.from({ length: 24 }, (_, i) => `The book of the ${id} tells on page ${i} what was paid for the ${id} in 17${i}0. `).join('')}End of ${id}.`,
}));

interface Turn {
  readonly results: readonly number[];
  readonly deduplicate: boolean;
  readonly blocks: boolean;
  readonly says: 'nothing' | 'file';
}

const turns = fc.array(
  fc.record({
    results: fc.array(fc.nat(6), { maxLength: 3 }),
    deduplicate: fc.boolean(),
    blocks: fc.boolean(),
    says: fc.constantFrom('nothing' as const, 'file' as const),
  }),
  { minLength: 3, maxLength: 10 },
);

function resultText(number: number): string {
  if (number < FILES.length) return FILES[number]!;
  if (number === 4) return STATUS;
  return write(number === 5 ? 'json' : 'tags', number === 5 ? PAGES.slice(0, 2) : PAGES.slice(1));
}

function afterTurn(given: readonly Message[], { results, says }: Turn, turn: number): readonly Message[] {
  return [
    ...given,
    { role: 'user', content: says === 'file' ? `What of this?\n${FILES[2]!.slice(0, 1_500)}` : `Go on, ${turn}.` },
    ...results.map((number): Message => ({ role: 'tool', tool_call_id: `c${turn}`, content: resultText(number) })),
  ];
}

const said = (turn: number): Message => ({
  role: 'assistant',
  content: `So it is: ${FILES[0]!.slice(0, 900)} ${turn}`,
});

class InProcess {
  readonly #history = new ServedHistory();
  readonly #memory = new ConversationMemory(new MemoryConversationStore({}), 1_000_000);
  #now = 0;

  serve(messages: readonly Message[], { deduplicate, blocks }: Pick<Turn, 'deduplicate' | 'blocks'>) {
    const now = this.#now++;
    const body = JSON.stringify({ model: 'm', messages });
    const recognised = recogniseRequest(Buffer.from(body), chatApi, {
      find: (texts) => formedBlocks(texts, { refersToParts: blocks }),
    });
    if (recognised === undefined) return { sent: messages, references: 0, parts: 0 };
    const placed = arrangeInPlace(recognised, {
      tenant: 't',
      memory: this.#memory,
      arrange: (block) => arrange({ ...block, hints: false }, this.#history, now),
      deduplicate,
      blocks,
    });
    rememberOrders(recognised, placed.blocks, { tenant: 't', memory: this.#memory });
    for (const { arrangement } of placed.blocks) {
      if (arrangement !== undefined) observe({ kind: 'completed', arrangement, now }, this.#history);
    }
    const { messages: sent } = JSON.parse(permuted(recognised, placed.changes).toString()) as {
      messages: readonly Message[];
    };
    const references = placed.blocks.flatMap((each) => each.references);
    return {
      sent,
      references: references.filter(({ partly }) => !partly).length,
      parts: references.filter(({ partly }) => partly).length,
    };
  }
}

const spaced = (words: string) => words.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&').replaceAll(' ', '\\s+');

/** The text that a tool's message stands for, with every reference looked up in what stands before it. */
function reassembled(before: string, content: string): string {
  const whole = /^Given earlier in this conversation: \[«([^«»]*)»\]\.$/.exec(content.trim());
  if (whole !== null) {
    const [first, last] = whole[1]!.split(' … ');
    const known = FILES.filter((text) => {
      const words = text.replace(/\s+/g, ' ').trim();
      const fits =
        last === undefined
          ? words.startsWith(first!.replace(/…$/, ''))
          : words.startsWith(first!) && words.endsWith(last);
      return fits && before.includes(text.trim());
    });
    expect(known).toHaveLength(1);
    return known[0]!;
  }
  return content.replace(REFERENCE, (reference, first: string, last: string) => {
    const found = new RegExp(`${spaced(first)}[\\s\\S]*?${spaced(last)}`).exec(before);
    if (found === null) throw new Error(`${reference} leads nowhere`);
    return found[0];
  });
}

describe('results of tools that hold no documents', () => {
  it('are shown once, whole or in parts, and what was sent stays, however the switches stand', () => {
    let references = 0;
    let parts = 0;
    fc.assert(
      fc.property(turns, fc.boolean(), (all, toggles) => {
        const way = new InProcess();
        let given: readonly Message[] = [{ role: 'system', content: 'Use the tools.' }];
        let before: readonly Message[] = [];
        for (const [at, turn] of all.entries()) {
          given = afterTurn(given, turn, at);
          // Parts are asked for in all requests of a conversation, or in none.
          const switches = { deduplicate: !toggles || turn.deduplicate, blocks: all[0]!.blocks };
          const now = way.serve(given, switches);
          references += now.references;
          parts += now.parts;
          expect(now.sent.slice(0, before.length)).toEqual(before);
          before = now.sent;
          for (const [place, { role, content }] of given.entries()) {
            if (role !== 'tool' || content.startsWith('<') || content.includes('"results"')) {
              if (role !== 'tool') expect(now.sent[place]).toEqual(given[place]);
              continue;
            }
            const shown = now.sent.slice(0, place).filter((each) => each.role !== 'assistant');
            const words = reassembled(shown.map((each) => each.content).join('\n'), now.sent[place]!.content);
            expect(words.trim()).toBe(content.trim());
          }
          given = [...given, said(at)];
          before = [...before, said(at)];
        }
      }),
      { seed: SEED, numRuns: runs(240) },
    );
    expect(references).toBeGreaterThan(300);
    expect(parts).toBeGreaterThan(runs(300));
  });

  const tool = (content: string): Message => ({ role: 'tool', tool_call_id: 'c', content });
  const ask = (...results: string[]): Message[] => [
    { role: 'user', content: 'Read it.' },
    ...results.flatMap((content): Message[] => [tool(content), { role: 'assistant', content: 'More.' }]),
    { role: 'user', content: 'And?' },
  ];

  it('go through untouched where nothing comes again, and are none of the record', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const body = { model: 'm', messages: ask(FILES[0]!, FILES[2]!, STATUS, STATUS) };
    const asked = { ...body, warmpath: { deduplicate: true } };
    const reply = await send(`${gateway.url}/v1/chat/completions`, asked);
    expect(engine.last.body).toBe(JSON.stringify(body));
    expect(told(reply).recognised).toBeUndefined();
    expect(told(reply).references).toBeUndefined();
  });

  it('are told in headers, record and explanation', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const body = { model: 'm', messages: ask(FILES[0]!, FILES[1]!, FILES[2]!, FILES[2]!), warmpath: { blocks: true } };
    const reply = await send(`${gateway.url}/v1/chat/completions`, body);
    const { messages } = JSON.parse(engine.last.body) as { messages: Message[] };
    expect(messages[3]!.content).toContain('alpha.changed(20)');
    expect(messages[3]!.content.length).toBeLessThan(FILES[1]!.length * 0.7);
    expect(messages[7]!.content).toMatch(/^ {2}Given earlier in this conversation: \[«const beta0 .*…»\]\.\n$/);
    expect(told(reply)).toMatchObject({
      recognised: 'result 1 history, result 1 history',
      references: '1',
      shortened: '1',
    });
    const record = JSON.parse((await send(`${gateway.url}/v1/requests/${reply.headers['x-request-id']}`)).text);
    expect(record).toMatchObject({
      references: 1,
      shortened: 1,
      blocks: [
        { format: 'result', references: [], shortened: [0] },
        { format: 'result', references: [0], shortened: [] },
      ],
    });
    const explained = explainRequest(JSON.stringify(body), {});
    expect(explained.blocks.map(({ place, references }) => [place, references.map(({ partly }) => partly)])).toEqual([
      ['messages[3].content', [true]],
      ['messages[7].content', [false]],
    ]);
    const without = explainRequest(JSON.stringify({ ...body, warmpath: {} }), {});
    expect(without.blocks).toHaveLength(1);
  });

  it('are referred to on /v1/messages, in a message that holds several, and stay whole where unasked', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const result = (content: string, id: string) => ({ type: 'tool_result', tool_use_id: id, content });
    const use = (id: string) => ({ role: 'assistant', content: [{ type: 'tool_use', id, name: 'read', input: {} }] });
    const body = {
      model: 'm',
      max_tokens: 9,
      messages: [
        { role: 'user', content: 'Read.' },
        use('a'),
        { role: 'user', content: [result(FILES[0]!, 'a'), result(FILES[2]!, 'b')] },
        use('c'),
        { role: 'user', content: [result(FILES[2]!, 'c'), { type: 'text', text: 'And?' }] },
      ],
    };
    await send(`${gateway.url}/v1/messages`, { ...body, warmpath: { deduplicate: true } });
    const { messages } = JSON.parse(engine.last.body) as typeof body;
    expect(messages.slice(0, 4)).toEqual(body.messages.slice(0, 4));
    expect(JSON.stringify(messages[4])).toContain('Given earlier in this conversation: [«const beta0');
    await send(`${gateway.url}/v1/messages`, body);
    expect(JSON.parse(engine.last.body)).toEqual(body);
  });

  it('are compared with what stands beside documents, too, where parts are asked for', async () => {
    const { engine, gateway } = await stand(answerAsAsked);
    const opening: Message[] = [
      { role: 'system', content: `Our rules.\n${PAGES[0]!.text}\nNo more.` },
      { role: 'user', content: 'Search.' },
      { role: 'assistant', content: PAGES[1]!.text },
      tool(write('tags', PAGES)),
    ];
    await send(`${gateway.url}/v1/chat/completions`, {
      model: 'm',
      messages: opening,
      warmpath: { blocks: true },
    });
    const { messages } = JSON.parse(engine.last.body) as { messages: Message[] };
    expect(messages.slice(0, 3)).toEqual(opening.slice(0, 3));
    expect(messages[3]!.content).toContain('Given earlier in this conversation: [«');
    expect(messages[3]!.content).not.toContain(PAGES[0]!.text);
    expect(messages[3]!.content).toContain(PAGES[1]!.text);
    expect(messages[3]!.content).toContain(PAGES[2]!.text);
  });
});
