import { describe, expect, it } from 'vitest';
import { answerAsAsked } from './fake-engine.js';
import { type Stand, type StandConfig, send, stand } from './harness.js';

// What another context layer gets wrong, or states in its own tests, as cases for this one.

const CONSERVATIVE: StandConfig = {
  recognise: { chat: 'conservative', messages: 'conservative', completions: 'conservative' },
};
const PORT = 'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay.';
const LAMP = 'Lanterns from the Tiber workshop burn colza oil; a full reservoir lasts nine hours.';
const PEAR = 'The north orchard carries forty rows of late pears, which are picked after the first frost.';
const ICE = 'Between two surveys the Aster glacier lost eleven metres of thickness along its margin.';

async function through({ gateway, engine }: Stand, body: object, path = '/v1/chat/completions'): Promise<string> {
  expect((await send(`${gateway.url}${path}`, body)).status).toBe(200);
  return engine.last.body;
}

const user = (content: string, ...before: object[]) => ({
  model: 'm',
  messages: [...before, { role: 'user', content }],
});
const docs = (...texts: string[]) =>
  `<documents>${texts.map((text) => `<document>${text}</document>`).join('')}</documents>`;
const contentOf = (body: string, at = -1) =>
  (JSON.parse(body) as { messages: { content: string }[] }).messages.at(at)!.content;
const count = (text: string, part: string) => text.split(part).length - 1;

/** Serves one order, then asks for another. */
async function reordered(first: object, second: object, path?: string): Promise<string> {
  const gateway = await stand(answerAsAsked, CONSERVATIVE);
  await through(gateway, first, path);
  return through(gateway, second, path);
}

describe('blocks of every form, with what stands around them', () => {
  it.each([
    [
      'attributes and white space',
      (a: string, b: string) =>
        `Intro.\n<docs kind="x">\n  <doc id="1x"  src='p'>\n${a}\n</doc>\n\n  <doc id="2x">${b}</doc>\n</docs>\nOutro?`,
    ],
    [
      'a custom wrapper',
      (a: string, b: string) =>
        `Intro. <files>\n<file path="a.md">${a}</file>\n<file path="b.md">${b}</file>\n</files> Outro?`,
    ],
    ['numbers', (a: string, b: string) => `Sources:\n[1] ${a}\n[2] ${b}\n\nQuestion: why [so]?`],
    [
      'results with sibling keys',
      (a: string, b: string) =>
        JSON.stringify({
          took: 3,
          results: [
            { path: 'a', text: a },
            { path: 'b', text: b },
          ],
          next: null,
        }),
    ],
  ])('%s: nothing is lost, and the same order is the same bytes', async (_, write) => {
    const same = user(write(PORT, LAMP));
    expect(await reordered(same, same)).toBe(JSON.stringify(same));
    const moved = contentOf(await reordered(user(write(PORT, LAMP)), user(write(LAMP, PORT))));
    for (const passage of [PORT, LAMP]) expect(count(moved, passage)).toBe(1);
    expect([...moved].sort().join('')).toBe([...write(LAMP, PORT)].sort().join(''));
  });

  it('snippets of one file are two documents, and one that is new is not dropped', async () => {
    const results = (...texts: string[]) =>
      user(JSON.stringify({ results: texts.map((text) => ({ path: 'src/a.ts', text })) }));
    const moved = contentOf(await reordered(results(PORT, LAMP), results(PEAR, LAMP, PORT)));
    for (const passage of [PORT, LAMP, PEAR]) expect(count(moved, passage)).toBe(1);
  });

  it.each([
    'rows[0] = rows[1];\nrows[1] = rows[2];\nWhat is wrong?',
    `${PORT} [1] ${LAMP} [2] Are these citations right?`,
    JSON.stringify({ results: [{ path: 'a', text: PORT }] }),
    docs(PORT),
  ])('is none: %#', async (text) => {
    const body = user(text);
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const reply = await send(`${gateway.gateway.url}/v1/chat/completions`, body);
    expect(reply.headers['x-warmpath-recognised']).toBeUndefined();
    expect(gateway.engine.last.body).toBe(JSON.stringify(body));
  });

  it('the question never moves with the last document', async () => {
    const body = (...texts: string[]) =>
      user(`Sources:\n${texts.map((text, i) => `[${i + 1}] ${text}`).join('\n')}\n\nWhat is the weight?`);
    const moved = contentOf(await reordered(body(PORT, LAMP), body(LAMP, PORT)));
    expect(moved.endsWith(`${LAMP}\n\nWhat is the weight?`)).toBe(true);
  });
});

describe('results of tools', () => {
  const result = (content: unknown) => ({
    model: 'm',
    max_tokens: 9,
    messages: [
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'a', content },
          { type: 'tool_result', tool_use_id: 'b', content: 'none' },
        ],
      },
    ],
  });

  it('as a string and as blocks, several in a message', async () => {
    for (const write of [(text: string) => text, (text: string) => [{ type: 'text', text }]]) {
      const moved = await reordered(result(write(docs(PORT, LAMP))), result(write(docs(LAMP, PORT))), '/v1/messages');
      expect(JSON.parse(moved)).toEqual(result(write(docs(PORT, LAMP))));
    }
  });

  it('a message with `tool_calls: null` is searched like any other', async () => {
    const turn = (text: string) =>
      user(
        'Why?',
        { role: 'assistant', content: null, tool_calls: null },
        { role: 'tool', tool_call_id: 'x', content: text },
      );
    const moved = await reordered(turn(docs(PORT, LAMP)), turn(docs(LAMP, PORT)));
    expect(JSON.parse(moved)).toEqual(turn(docs(PORT, LAMP)));
  });
});

describe('conversations', () => {
  it('overlapping results over four turns: every document stays, and nothing that was sent changes', async () => {
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const contexts = [
      [PORT, LAMP, PEAR],
      [LAMP, PORT, ICE],
      [ICE, PEAR, PORT],
      [PEAR, ICE, LAMP],
    ];
    const messages: object[] = [{ role: 'system', content: 'Search, then answer.' }];
    let sent: unknown[] = [];
    for (const [turn, context] of contexts.entries()) {
      messages.push(
        { role: 'user', content: `Question ${turn}?` },
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: `c${turn}`, type: 'function', function: { name: 'search', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: `c${turn}`, content: docs(...context) },
      );
      const body = JSON.parse(await through(gateway, { model: 'm', messages })) as { messages: { content: string }[] };
      expect(body.messages.slice(0, sent.length)).toEqual(sent);
      sent = body.messages;
      for (const [at, passages] of contexts.slice(0, turn + 1).entries()) {
        const { content } = body.messages[3 + 4 * at]!;
        for (const passage of passages) expect(count(content, passage)).toBe(1);
      }
      messages.push({ role: 'assistant', content: `Answer ${turn}.` });
    }
  });

  it('a history that was cut is served like any other, with all its documents', async () => {
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const opening = { role: 'user', content: docs(PORT, LAMP) };
    const turns = [opening, { role: 'assistant', content: 'So.' }, { role: 'user', content: docs(LAMP, PEAR, PORT) }];
    await through(gateway, { model: 'm', messages: turns });
    const cut = await through(gateway, { model: 'm', messages: turns.slice(2) });
    for (const passage of [PORT, LAMP, PEAR]) expect(count(cut, passage)).toBe(1);
  });

  it('two users with the same opening turns keep all their documents', async () => {
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const opening = [
      { role: 'system', content: 'Answer.' },
      { role: 'user', content: docs(PORT, LAMP) },
      { role: 'assistant', content: 'So.' },
    ];
    await through(gateway, { model: 'm', messages: [...opening, { role: 'user', content: docs(PEAR, ICE) }] });
    const other = await through(gateway, {
      model: 'm',
      messages: [...opening, { role: 'user', content: docs(ICE, PEAR, LAMP) }],
    });
    expect(count(other, LAMP)).toBe(2);
    for (const passage of [PORT, PEAR, ICE]) expect(count(other, passage)).toBe(1);
  });
});

describe('markers of external content', () => {
  const marked = (id: string, text = PORT) =>
    user(
      `Read this.\n<<<EXTERNAL_UNTRUSTED_CONTENT id="${id}">>>\n${text}\n<<<END_EXTERNAL_UNTRUSTED_CONTENT id="${id}">>>\nWhy?`,
    );

  it('that differ in their drawn ids alone go out with the same bytes', async () => {
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const one = await through(gateway, marked('a1b2c3d4'));
    const two = await through(gateway, marked('ffff0000'));
    expect(two).toBe(one);
    expect(contentOf(one)).toContain(PORT);
    const other = await through(gateway, marked('a1b2c3d4', LAMP));
    expect(/id="(\w+)"/.exec(contentOf(other))![1]).not.toBe(/id="(\w+)"/.exec(contentOf(one))![1]);
  });

  it('stay as they are where they are not closed, and where nothing is to be recognised', async () => {
    const gateway = await stand(answerAsAsked, CONSERVATIVE);
    const open = user(
      '<<<EXTERNAL_UNTRUSTED_CONTENT id="a1b2c3d4">>> x <<<END_EXTERNAL_UNTRUSTED_CONTENT id="b1b2c3d4">>>',
    );
    expect(await through(gateway, open)).toBe(JSON.stringify(open));
    const off = await stand(answerAsAsked);
    expect(await through(off, marked('a1b2c3d4'))).toBe(JSON.stringify(marked('a1b2c3d4')));
  });
});
