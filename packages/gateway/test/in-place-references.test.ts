import { arrange, observe, type PolicyName, ServedHistory } from '@warmpath/core';
import { DEFAULT_POLICY } from '@warmpath/core/internal';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../../test/suite.js';
import { chatApi } from '../src/apis/prompt-apis.js';
import { ConversationMemory, MemoryConversationStore } from '../src/conversation/conversation-memory.js';
import { arrangeInPlace, permuted, rememberOrders } from '../src/prompt/arrange-in-place.js';
import { formedBlocks, recogniseRequest } from '../src/prompt/find-documents.js';
import type { PlacedBlock } from '../src/shapes/shapes.js';
import {
  afterStep,
  copiesIn,
  type Message,
  PASSAGES,
  type Passage,
  SHORT,
  steps,
  write,
} from './agent-conversations.js';
import { answerAsAsked } from './fake-engine.js';
import { closing, gatewayAt, type Stand, send, stand, told } from './harness.js';

const SEED = 20_261_121;
const LONG = PASSAGES.filter((passage) => passage !== SHORT);
const [HARBOUR, LANTERN, ORCHARD, FELLED, GLACIER, VELKA] = LONG as [
  Passage,
  Passage,
  Passage,
  Passage,
  Passage,
  Passage,
];
const HINT = /Given earlier in this conversation: \[[^\]]*\]\./;
const OPENING: readonly Message[] = [
  { role: 'system', content: 'Search, then answer.' },
  { role: 'user', content: 'What is known of 0?' },
];
/** One request, and the messages that the engine got for it. */
interface Exchange {
  readonly given: readonly Message[];
  readonly sent: readonly Message[];
}

/** The way through recognition and de-duplication without sockets. */
class InProcess {
  readonly #history = new ServedHistory();
  #memory = new ConversationMemory(new MemoryConversationStore({}), 1_000_000);
  #now = 0;
  readonly #policy: PolicyName;
  readonly #blocks: boolean;

  constructor(policy: PolicyName = DEFAULT_POLICY, blocks = false) {
    this.#policy = policy;
    this.#blocks = blocks;
  }

  serve(given: readonly Message[], deduplicate: boolean): Exchange & { readonly blocks: readonly PlacedBlock[] } {
    const now = this.#now++;
    const body = JSON.stringify({ model: 'm', messages: given });
    const recognised = recogniseRequest(Buffer.from(body), chatApi, {
      find: (texts) => formedBlocks(texts, { refersToParts: this.#blocks }),
    });
    if (recognised === undefined) return { given, sent: given, blocks: [] };
    const placed = arrangeInPlace(recognised, {
      tenant: 't',
      memory: this.#memory,
      arrange: (block) => arrange({ policy: this.#policy, ...block, hints: false }, this.#history, now),
      deduplicate,
      blocks: this.#blocks,
    });
    rememberOrders(recognised, placed.blocks, { tenant: 't', memory: this.#memory });
    for (const { arrangement } of placed.blocks) {
      if (arrangement !== undefined) observe({ kind: 'completed', arrangement, now }, this.#history);
    }
    const { messages: sent } = JSON.parse(permuted(recognised, placed.changes).toString()) as {
      messages: readonly Message[];
    };
    return { given, sent, blocks: placed.blocks };
  }

  /** A restart, or another gateway. */
  forget(): void {
    this.#memory = new ConversationMemory(new MemoryConversationStore({}), 1_000_000);
  }
}

const shown = (messages: readonly Message[]) => messages.filter(({ role }) => role !== 'assistant');
/** How often each of `PASSAGES` stands in what is not the model's own. */
const copies = (messages: readonly Message[]) => {
  const text = shown(messages)
    .map(({ content }) => content)
    .join('\n');
  return PASSAGES.map((passage) => copiesIn(text, passage));
};
const saidByModel = (messages: readonly Message[]) => messages.filter(({ role }) => role === 'assistant');

/** No document is lost, none is brought in, and what the client said in the model's place is untouched. */
function expectComplete({ given, sent }: Exchange): void {
  const were = copies(given);
  const are = copies(sent);
  expect(are.map((count) => count > 0)).toEqual(were.map((count) => count > 0));
  expect(are.every((count, place) => count <= were[place]!)).toBe(true);
  expect(sent).toHaveLength(given.length);
  expect(saidByModel(sent)).toEqual(saidByModel(given));
}

/** Every document once, and where its first copy stood. */
function expectOnce({ given, sent }: Exchange): void {
  const were = copies(given);
  expect(copies(sent)).toEqual(PASSAGES.map((passage, i) => (passage === SHORT ? were[i]! : Math.min(1, were[i]!))));
  const first = (messages: readonly Message[], passage: Passage) =>
    messages.findIndex(({ role, content }) => role !== 'assistant' && copiesIn(content, passage) > 0);
  expect(PASSAGES.map((passage) => first(sent, passage))).toEqual(PASSAGES.map((passage) => first(given, passage)));
}

/** The form of a tool's answer stays: the same members, the same ids, titles and scores. */
function expectSameForm({ given, sent }: Exchange): void {
  for (const [at, { role, content }] of given.entries()) {
    if (role !== 'tool' || !content.startsWith('{')) continue;
    const withoutWords = (text: string) => {
      const { results, ...rest } = JSON.parse(text) as { results: { content: string; url: string; score: number }[] };
      const named = results.map(({ content: _, ...others }) => others).sort((a, b) => a.score - b.score);
      return { ...rest, results: named };
    };
    expect(withoutWords(sent[at]!.content)).toEqual(withoutWords(content));
  }
}

const isContinued = (before: readonly Message[], now: readonly Message[]) =>
  before.every(({ role, content }, at) => now[at]?.role === role && now[at].content === content);

/** Of everything that the engine has had, not a byte is different. */
function expectReplayed(earlier: readonly Exchange[], now: Exchange): void {
  for (const { given, sent } of earlier)
    if (isContinued(given, now.given)) expect(isContinued(sent, now.sent)).toBe(true);
}

/** One of them differs, in its last words. */
const sentence = (i: number, changed: number) =>
  `In the year ${1_700 + 7 * i} the keeper of house ${i} wrote down what the sea had brought to its ${i === changed ? 'garden' : 'door'}.`;

describe('documents that come again where clients write their prompts', () => {
  it('are sent once, whatever becomes of the conversation', () => {
    fc.assert(
      fc.property(steps, (all) => {
        const way = new InProcess();
        const served: Exchange[] = [];
        let given = OPENING;
        for (const [turn, step] of all.entries()) {
          given = afterStep(given, step, turn + 1);
          const now = way.serve(given, true);
          expectComplete(now);
          expectOnce(now);
          expectSameForm(now);
          expectReplayed(served, now);
          served.push(now);
        }
      }),
      { seed: SEED, numRuns: runs(800) },
    );
  });

  it('stay as they were sent when de-duplication is switched on and off', () => {
    fc.assert(
      fc.property(steps, fc.array(fc.boolean(), { minLength: 8, maxLength: 8 }), (all, switched) => {
        const way = new InProcess();
        const served: Exchange[] = [];
        let given = OPENING;
        for (const [turn, step] of all.entries()) {
          given = afterStep(given, step, turn + 1);
          const now = way.serve(given, switched[turn]!);
          expectComplete(now);
          expectReplayed(served, now);
          served.push(now);
        }
      }),
      { seed: SEED, numRuns: runs(300) },
    );
  });

  it('are referred to in the same words by a gateway that knows nothing of the conversation', () => {
    fc.assert(
      fc.property(steps, (all) => {
        const way = new InProcess();
        let given = OPENING;
        for (const [turn, step] of all.entries()) given = afterStep(given, step, turn + 1);
        const { sent, blocks } = way.serve(given, true);
        way.forget();
        const again = way.serve(
          [...given, { role: 'assistant', content: 'So.' }, { role: 'user', content: 'And?' }],
          true,
        );
        // Orders are remembered, references follow from the messages.
        const references = (placed: readonly PlacedBlock[]) =>
          placed.map((each) => each.references.map(({ rank, written }) => [rank, written]));
        expect(references(again.blocks)).toEqual(references(blocks));
        expect(copies(again.sent)).toEqual(copies(sent));
      }),
      { seed: SEED, numRuns: runs(300) },
    );
  });

  it('are named by a hint that holds for one document above it alone', () => {
    fc.assert(
      fc.property(steps, (all) => {
        let given = OPENING;
        for (const [turn, step] of all.entries()) {
          // Not all forms show ids.
          const named = 'format' in step && step.format !== 'json' ? { ...step, format: 'tags' as const } : step;
          given = afterStep(given, named, turn + 1);
        }
        const { sent } = new InProcess().serve(given, true);
        const text = shown(sent)
          .map(({ content }) => content)
          .join('\n');
        for (const match of text.matchAll(new RegExp(HINT, 'g'))) {
          const name = /\[«?(.*?)(?:….*)?»?\]/
            .exec(match[0])![1]!
            .replaceAll('\\"', '"')
            .replaceAll('\\\\', '\\')
            .trim();
          const before = text.slice(0, match.index);
          const meant = LONG.filter(
            (passage) =>
              copiesIn(before, passage) > 0 && (passage.id === name.split('/').at(-1) || passage.text.startsWith(name)),
          );
          expect(meant).not.toEqual([]);
          if (name.length < 12) expect(meant).toHaveLength(1);
        }
      }),
      { seed: SEED, numRuns: runs(300) },
    );
  });

  it('lose no sentence where parts are referred to, and are sent the same again', () => {
    const overlaps = fc.array(
      fc.array(fc.tuple(fc.nat(20), fc.integer({ min: 4, max: 14 }), fc.nat(30)), { minLength: 2, maxLength: 4 }),
      {
        minLength: 2,
        maxLength: 5,
      },
    );
    let referred = 0;
    fc.assert(
      fc.property(overlaps, (turns) => {
        const way = new InProcess(DEFAULT_POLICY, true);
        const served: Exchange[] = [];
        const given: Message[] = [...OPENING];
        for (const chunks of turns) {
          const passages = chunks.map(([from, count, changed]) => {
            const sentences = Array.from({ length: count }, (_, i) => sentence(from + i, changed));
            return { id: `c${from}-${count}`, text: sentences.join(' ') };
          });
          given.push(
            { role: 'tool', tool_call_id: 'c', content: write('json', passages) },
            { role: 'assistant', content: 'So.' },
          );
          const now = way.serve([...given], true);
          expectReplayed(served, now);
          served.push(now);
          referred += now.blocks.flatMap(({ references }) => references).filter(({ partly }) => partly).length;
          const text = shown(now.sent)
            .map(({ content }) => content)
            .join('\n');
          for (const [from, count, changed] of turns.slice(0, turns.indexOf(chunks) + 1).flat()) {
            for (let i = from; i < from + count; i++) expect(text.includes(sentence(i, changed))).toBe(true);
          }
          for (const [at, { content }] of now.sent.entries())
            expect(content.length).toBeLessThanOrEqual(now.given[at]!.content.length);
        }
      }),
      { seed: SEED, numRuns: runs(150) },
    );
    expect(referred).toBeGreaterThan(runs(50));
  });

  const tool = (...passages: Passage[]): Message => ({
    role: 'tool',
    tool_call_id: 'c',
    content: write('json', passages),
  });
  const answer = (content: string): Message => ({ role: 'assistant', content });

  it('leave the label that a question refers to', () => {
    const given: Message[] = [
      { role: 'user', content: `${write('numbered', [HARBOUR, LANTERN])}\n\nWhat is known?` },
      answer('Much.'),
      { role: 'user', content: `${write('numbered', [GLACIER, HARBOUR, VELKA])}\n\nWhat does [2] say?` },
    ];
    const { sent } = new InProcess().serve(given, true);
    expect(sent[2]!.content).toContain(
      '\n[2] Given earlier in this conversation: [«The harbour of Velmora was dredged in 1931 so that grain',
    );
    expect(sent[2]!.content).toContain(`\n[1] ${GLACIER.text}`);
    expect(sent[2]!.content).toContain(`\n[3] ${VELKA.text}`);
  });

  it('of one id and other words are other documents, and a name that both have is not used', () => {
    const given = [tool(ORCHARD, HARBOUR), answer('So.'), tool(FELLED, HARBOUR), answer('So.'), tool(ORCHARD, FELLED)];
    const { sent } = new InProcess().serve(given, true);
    expect(JSON.parse(sent[2]!.content).results.map(({ content }: { content: string }) => content)).toEqual([
      FELLED.text,
      'Given earlier in this conversation: [https://h.example/harbour].',
    ]);
    expect(JSON.parse(sent[4]!.content).results.map(({ content }: { content: string }) => content)).toEqual([
      expect.stringMatching(/conversation: \[«The north orchard .* … .*»\]\.$/),
      expect.stringMatching(/conversation: \[«The north orchard .* … .*»\]\.$/),
    ]);
  });

  it('twice in one answer stand behind the one that is whole, however they are ordered', () => {
    const [last, first] = ['z', 'a'].map((id) => ({ ...HARBOUR, id }));
    const { sent, blocks } = new InProcess('sorted').serve(
      [{ role: 'tool', tool_call_id: 'c', content: write('tags', [GLACIER, last!, LANTERN, first!]) }],
      true,
    );
    expect(sent[0]!.content).toMatch(
      /id="z"[^>]*>\nThe harbour[\s\S]*id="a"[^>]*>\nGiven earlier in this conversation: \[z\]/,
    );
    expect(blocks[0]!.sent.order).toEqual([0, 1, 2, 3]);
  });
});

describe('references of a running gateway', () => {
  const ask = async ({ gateway, engine }: Stand, given: readonly Message[], headers = {}) => {
    const reply = await send(
      `${gateway.url}/v1/chat/completions`,
      { model: 'm', messages: given, warmpath: { deduplicate: true } },
      { headers },
    );
    return {
      reply,
      body: engine.last.body,
      given,
      sent: (JSON.parse(engine.last.body) as { messages: Message[] }).messages,
    };
  };

  it('bytes of the shared history are a prefix of the next turn, in what the engine gets', async () => {
    const one = await stand(answerAsAsked);
    let conversation = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (all) => {
        // The first words tell conversations apart: nothing that one was sent is another's history.
        let given: readonly Message[] = [{ role: 'system', content: `Number ${conversation++}.` }, ...OPENING.slice(1)];
        let before: { readonly given: readonly Message[]; readonly body: string } | undefined;
        for (const [turn, step] of all.entries()) {
          given = afterStep(given, step, turn + 1);
          const now = await ask(one, given);
          expectComplete(now);
          expectOnce(now);
          if (before !== undefined && isContinued(before.given, given)) {
            const shared = before.body.slice(0, -']}'.length);
            expect(Buffer.from(now.body).subarray(0, Buffer.byteLength(shared)).equals(Buffer.from(shared))).toBe(true);
          }
          before = now;
        }
      }),
      { seed: SEED, numRuns: runs(40) },
    );
  });

  const search = (format: 'json' | 'tags', ...passages: Passage[]): Message => ({
    role: 'tool',
    tool_call_id: 'c',
    content: write(format, passages),
  });
  const TWICE: readonly Message[] = [
    ...OPENING,
    search('json', HARBOUR, LANTERN),
    { role: 'assistant', content: 'More.' },
    search('json', GLACIER, HARBOUR),
  ];

  it('show in headers, metrics and the record of the request', async () => {
    const one = await stand(answerAsAsked);
    const { reply, sent } = await ask(one, TWICE);
    expect(sent[4]!.content).toContain('Given earlier in this conversation: [https://h.example/harbour].');
    expect(told(reply).references).toBe('1');
    const saved = Number(told(reply).saved);
    expect(saved).toBeGreaterThan(0);
    const record = JSON.parse(
      (await send(`${one.gateway.url}/v1/requests/${reply.headers['x-request-id'] as string}`)).text,
    );
    expect(record).toMatchObject({ references: 1, deduplicatedTokens: saved });
    expect(record.blocks.map(({ references }: { references: unknown }) => references)).toEqual([[], [1]]);
    const metrics = (await send(`${one.gateway.url}/metrics`)).text;
    expect(metrics).toContain('warmpath_documents_deduplicated_total 1');
    expect(metrics).toContain(`warmpath_deduplicated_tokens_total ${saved}`);
  });

  it('are made only where the request asks for them', async () => {
    const one = await stand(answerAsAsked);
    for (const warmpath of [undefined, {}, { deduplicate: false }]) {
      await send(`${one.gateway.url}/v1/chat/completions`, { model: 'm', messages: TWICE, warmpath });
      expect(JSON.parse(one.engine.last.body)).toEqual({ model: 'm', messages: TWICE });
    }
    const { sent } = await ask(one, TWICE);
    expect(sent[4]!.content).not.toContain(HARBOUR.text);
  });

  it('stay as they were sent when the conversation brings documents of its own', async () => {
    for (const more of [{ session: 's', forgotten: 'mark' }, {}]) {
      const warmpath = { ...more, deduplicate: true };
      const one = await stand(answerAsAsked);
      const serve = async (messages: readonly Message[], documents: readonly object[] = []) => {
        await send(`${one.gateway.url}/v1/chat/completions`, { model: 'm', messages, documents, warmpath });
        return (JSON.parse(one.engine.last.body) as { messages: Message[] }).messages;
      };
      const before = await serve(TWICE);
      expect(before[4]!.content).toContain('Given earlier in this conversation');
      const question: Message[] = [
        { role: 'assistant', content: 'So.' },
        { role: 'user', content: 'And what else?' },
      ];
      const now = await serve([...TWICE, ...question], [{ id: 'pier', content: 'The pier is of oak.' }]);
      expect(now.slice(0, 5)).toEqual(before);
      expect(now[6]!.content).toContain('The pier is of oak.');
      const again: Message[] = [{ role: 'assistant', content: 'So.' }, search('tags', HARBOUR, LANTERN)];
      expect((await serve([...TWICE, ...question, ...again])).slice(0, 5)).toEqual(before);
    }
  });

  it('bring a document back when the message that held it is gone', async () => {
    const one = await stand(answerAsAsked);
    await ask(one, TWICE);
    const { sent } = await ask(one, TWICE.slice(3));
    expect(sent[1]!.content).toContain(HARBOUR.text);
  });

  it('are the same in Messages and Responses', async () => {
    const one = await stand(answerAsAsked);
    const first = write('json', [HARBOUR, LANTERN]);
    const second = write('json', [GLACIER, HARBOUR]);
    const result = (content: unknown) => ({
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: 't', content }],
    });
    await send(`${one.gateway.url}/v1/messages`, {
      model: 'm',
      max_tokens: 9,
      messages: [result(first), { role: 'assistant', content: 'More.' }, result([{ type: 'text', text: second }])],
      warmpath: { deduplicate: true },
    });
    expect(one.engine.last.body.split(HARBOUR.text)).toHaveLength(2);
    await send(`${one.gateway.url}/v1/responses`, {
      model: 'm',
      input: [first, second].map((output, i) => ({ type: 'function_call_output', call_id: `c${i}`, output })),
      warmpath: { deduplicate: true },
    });
    expect(one.engine.last.body.split(HARBOUR.text)).toHaveLength(2);
  });

  it('are the same after a restart', async () => {
    const one = await stand(answerAsAsked);
    const { sent } = await ask(one, TWICE);
    const other = closing(await gatewayAt(one.engine.url, {}));
    const next: Message[] = [...TWICE, { role: 'assistant', content: 'So.' }, { role: 'user', content: 'And?' }];
    const again = await ask({ gateway: other, engine: one.engine }, next);
    expect(again.sent.slice(0, 5)).toEqual(sent);
  });
});
