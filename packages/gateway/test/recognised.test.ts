import { describe, expect, it } from 'vitest';
import { answerAsAsked } from './fake-engine.js';
import { type Reply, type Stand, send, stand, told } from './harness.js';

const PASSAGES = {
  harbour:
    'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay. Two years on, the outer mole was raised by the height of a man, and the old light was moved to its end.',
  lantern: 'Lanterns from the Tiber workshop burn colza oil; a full reservoir lasts nine hours.',
  orchard: 'The north orchard carries forty rows of late pears, which are picked after the first frost.',
  glacier: 'Between two surveys the Aster glacier lost eleven metres of thickness along its margin.',
} as const;
type Name = keyof typeof PASSAGES;

const tagged = (...names: Name[]) =>
  `<warmpath-documents>\n${names.map((name) => `<document id="${name}">${PASSAGES[name]}</document>`).join('\n')}\n</warmpath-documents>`;
const numbered = (...names: Name[]) =>
  `<warmpath-documents>\n${names.map((name, i) => `[${i + 1}] ${PASSAGES[name]}`).join('\n')}\n</warmpath-documents>`;
const question = (documents: string, text = 'What is known?') => ({ role: 'user', content: `${documents}\n\n${text}` });
const namesIn = (text: string) =>
  Object.entries(PASSAGES)
    .map(([name, passage]) => [name, text.indexOf(passage.slice(0, 30))] as const)
    .filter(([, at]) => at >= 0)
    .sort((a, b) => a[1] - b[1])
    .map(([name]) => name);

interface Sent {
  readonly reply: Reply;
  /** What the engine got. */
  readonly body: string;
}

async function ask({ gateway, engine }: Stand, body: object | string, path = '/v1/chat/completions'): Promise<Sent> {
  const reply = await send(`${gateway.url}${path}`, body);
  return { reply, body: engine.last.body };
}

const chat = (...messages: object[]) => ({ model: 'm', messages });
const lastContent = (body: string) =>
  (JSON.parse(body) as { messages: { content: string }[] }).messages.at(-1)!.content;

const SORTED = { policy: 'sorted' };

describe('documents that stand in prompts', () => {
  it('are ordered along what was served before, and nothing else changes', async () => {
    const gateway = await stand(answerAsAsked);
    const first = await ask(gateway, chat(question(tagged('harbour', 'lantern', 'orchard'))));
    expect(told(first.reply).recognised).toBe('tags 3 arranged');
    expect(lastContent(first.body)).toBe(`${tagged('harbour', 'lantern', 'orchard')}\n\nWhat is known?`);
    const second = await ask(gateway, chat(question(tagged('glacier', 'lantern', 'harbour'), 'And now?')));
    expect(lastContent(second.body)).toBe(`${tagged('harbour', 'lantern', 'glacier')}\n\nAnd now?`);
    expect(Number(told(second.reply).predicted)).toBeGreaterThan(0);
    expect(told(second.reply).policy).toBe('foresight');
  });

  it('leave every other byte as the client wrote it', async () => {
    const gateway = await stand(answerAsAsked);
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const body = `{ "seed":12345678901234567890 ,"model":"m","messages":[ {"content":"caf\\u00e9 \\/","role":"system"},\n {"role":"user","content":${JSON.stringify(`${tagged('lantern', 'harbour')}\nWhy?`)},"name":"n"}],"x":1.0}`;
    const unchanged = await ask(gateway, body);
    expect(unchanged.body).toBe(body);
    await ask(gateway, body.replace(/"content":"caf.*?"role":"system"/, '"role":"system","content":"x"'));
    const moved = await ask(gateway, chat(question(tagged('lantern', 'harbour'))));
    expect(namesIn(moved.body)).toEqual(['harbour', 'lantern']);
    const again = `{"z":1.0,"model":"m","messages":[{"role":"user","content":${JSON.stringify(`${tagged('lantern', 'harbour')}\n\nHow?`)}}],"n":9007199254740993}`;
    const { body: sent } = await ask(gateway, again);
    expect(sent).toBe(
      again.replace(
        JSON.stringify(tagged('lantern', 'harbour')).slice(1, -1),
        JSON.stringify(tagged('harbour', 'lantern')).slice(1, -1),
      ),
    );
  });

  it('in numbered lists take their labels along, whatever the prompt says of labels', async () => {
    const gateway = await stand(answerAsAsked);
    for (const asked of ['What is known?', 'What does [1] say?']) {
      const sorted = { ...chat(question(numbered('orchard', 'lantern', 'harbour'), asked)), warmpath: SORTED };
      const content = lastContent((await ask(gateway, sorted)).body);
      expect(content).not.toBe(`${numbered('orchard', 'lantern', 'harbour')}\n\n${asked}`);
      expect(content).toContain(`[1] ${PASSAGES.orchard}`);
      expect(content).toContain(`[2] ${PASSAGES.lantern}`);
      expect(content).toContain(`[3] ${PASSAGES.harbour}`);
    }
  });

  it('are sent the same when they come again as history', async () => {
    const gateway = await stand(answerAsAsked);
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const opening = question(tagged('lantern', 'harbour'));
    const first = await ask(gateway, chat(opening));
    const sent = (JSON.parse(first.body) as { messages: unknown[] }).messages;
    expect(namesIn(JSON.stringify(sent))).toEqual(['harbour', 'lantern']);
    const history: object[] = [opening];
    for (const turn of [
      question(numbered('orchard', 'glacier')),
      question(tagged('glacier', 'harbour'), 'The first document?'),
      { role: 'user', content: 'Thanks. What about [2]?' },
    ]) {
      history.push({ role: 'assistant', content: 'It is known [1].' }, turn);
      const next = await ask(gateway, chat(...history));
      const messages = (JSON.parse(next.body) as { messages: unknown[] }).messages;
      // Bytes that the engine has had never change.
      expect(messages.slice(0, sent.length)).toEqual(sent);
      sent.splice(0, sent.length, ...messages);
      for (const name of namesIn(JSON.stringify(history))) expect(namesIn(JSON.stringify(messages))).toContain(name);
    }
  });

  it('of a history that was never seen stay as they are', async () => {
    const gateway = await stand(answerAsAsked);
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const request = chat(
      question(tagged('lantern', 'harbour')),
      { role: 'assistant', content: 'Yes.' },
      { role: 'user', content: 'Why?' },
    );
    const { reply, body } = await ask(gateway, request);
    expect(body).toBe(JSON.stringify(request));
    expect(told(reply).recognised).toBe('tags 2 history');
  });

  it('of one tenant do not order those of another', async () => {
    const gateway = await stand(answerAsAsked);
    await send(`${gateway.gateway.url}/v1/chat/completions`, chat(question(tagged('harbour', 'lantern'))), {
      headers: { authorization: 'Bearer one' },
    });
    const request = chat(question(tagged('lantern', 'harbour')));
    await send(`${gateway.gateway.url}/v1/chat/completions`, request, { headers: { authorization: 'Bearer two' } });
    expect(gateway.engine.last.body).toBe(JSON.stringify(request));
  });

  it.each([
    ['/v1/completions', (text: string) => ({ model: 'm', prompt: text })],
    [
      '/v1/messages',
      (text: string) => ({
        model: 'm',
        max_tokens: 9,
        messages: [
          { role: 'user', content: [{ type: 'tool_result', tool_use_id: 't', content: [{ type: 'text', text }] }] },
        ],
      }),
    ],
    [
      '/v1/messages',
      (text: string) => ({ model: 'm', max_tokens: 9, system: text, messages: [{ role: 'user', content: 'Hm?' }] }),
    ],
    ['/v1/responses', (text: string) => ({ model: 'm', instructions: text, input: 'Hm?' })],
    [
      '/v1/responses',
      (text: string) => ({ model: 'm', input: [{ type: 'function_call_output', call_id: 'c', output: text }] }),
    ],
  ] as const)('are found in %s', async (path, bodyOf) => {
    const gateway = await stand(answerAsAsked);
    await ask(gateway, bodyOf(tagged('harbour', 'lantern')), path);
    const { body } = await ask(gateway, bodyOf(tagged('orchard', 'lantern', 'harbour')), path);
    expect(JSON.parse(body)).toEqual(bodyOf(tagged('harbour', 'lantern', 'orchard')));
  });
});

describe('documents in conversations', () => {
  const occurrences = (text: string, name: Name) => text.split(PASSAGES[name]).length - 1;

  it('overlap over four turns: every document is there once, and nothing that was sent changes', async () => {
    const gateway = await stand(answerAsAsked);
    const contexts: readonly (readonly Name[])[] = [
      ['harbour', 'lantern', 'orchard'],
      ['lantern', 'harbour', 'glacier'],
      ['glacier', 'orchard', 'harbour'],
      ['orchard', 'glacier', 'lantern'],
    ];
    const messages: object[] = [{ role: 'system', content: 'Search, then answer.' }];
    let sent: unknown[] = [];
    for (const [turn, context] of contexts.entries()) {
      const call = { id: `c${turn}`, type: 'function', function: { name: 'search', arguments: '{}' } };
      messages.push(
        { role: 'user', content: `Question ${turn}?` },
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: call.id, content: tagged(...context) },
      );
      const { body } = await ask(gateway, chat(...messages));
      const written = (JSON.parse(body) as { messages: { content: string }[] }).messages;
      expect(written.slice(0, sent.length)).toEqual(sent);
      sent = written;
      for (const name of contexts.slice(0, turn + 1).flat()) expect(occurrences(body, name)).toBe(1);
      messages.push({ role: 'assistant', content: `Answer ${turn}.` });
    }
  });

  it('all stay when the history was cut', async () => {
    const gateway = await stand(answerAsAsked);
    const turns = [
      question(tagged('harbour', 'lantern')),
      { role: 'assistant', content: 'So.' },
      question(tagged('lantern', 'orchard', 'harbour')),
    ];
    await ask(gateway, chat(...turns));
    const { body } = await ask(gateway, chat(...turns.slice(2)));
    for (const name of ['harbour', 'lantern', 'orchard'] as const) {
      expect(occurrences(lastContent(body), name)).toBe(1);
    }
  });

  it('of two users with the same opening turns all stay', async () => {
    const gateway = await stand(answerAsAsked);
    const opening = [
      { role: 'system', content: 'Answer.' },
      question(tagged('harbour', 'lantern')),
      { role: 'assistant', content: 'So.' },
    ];
    await ask(gateway, chat(...opening, question(tagged('orchard', 'glacier'))));
    const { body } = await ask(gateway, chat(...opening, question(tagged('glacier', 'orchard', 'lantern'))));
    const written = (JSON.parse(body) as { messages: { content: string }[] }).messages;
    for (const name of ['harbour', 'lantern'] as const) expect(occurrences(written[1]!.content, name)).toBe(1);
    for (const name of ['glacier', 'orchard'] as const) expect(occurrences(lastContent(body), name)).toBe(1);
    expect(occurrences(body, 'lantern')).toBe(1);
  });
});

describe('what the configuration and the request say', () => {
  it.each(['ask', 'auto', 'off'] as const)('with `%s`, what is not marked stays byte for byte', async (recognise) => {
    const gateway = await stand(answerAsAsked, { recognise });
    const plain = (...names: Name[]) => chat(question(tagged(...names).replaceAll('warmpath-documents', 'documents')));
    await ask(gateway, plain('harbour', 'lantern'));
    const { reply, body } = await ask(gateway, plain('lantern', 'harbour'));
    expect(body).toBe(JSON.stringify(plain('lantern', 'harbour')));
    expect(told(reply).recognised).toBe(recognise === 'auto' ? 'tags 2 fixed' : undefined);
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const marked = await ask(gateway, chat(question(tagged('lantern', 'harbour'))));
    expect(namesIn(marked.body)).toEqual(recognise === 'off' ? ['lantern', 'harbour'] : ['harbour', 'lantern']);
  });

  it('a request may ask for nothing', async () => {
    const gateway = await stand(answerAsAsked);
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const left = await ask(gateway, { ...chat(question(tagged('lantern', 'harbour'))), warmpath: { bypass: true } });
    expect(namesIn(left.body)).toEqual(['lantern', 'harbour']);
    expect(left.body).not.toContain('"warmpath"');
    const kept = await ask(gateway, {
      ...chat(question(tagged('lantern', 'orchard', 'harbour'))),
      warmpath: { maxShift: 0 },
    });
    expect(namesIn(kept.body)).toEqual(['lantern', 'orchard', 'harbour']);
    const wrong = await ask(gateway, { ...chat(question('x')), warmpath: { recognise: 'all' } });
    expect(wrong.reply.status).toBe(400);
    expect(wrong.reply.text).toContain('warmpath.recognise');
  });

  it('explicit documents come first, and large bodies are left alone', async () => {
    const gateway = await stand(answerAsAsked);
    const explicit = await ask(gateway, {
      ...chat(question(tagged('harbour', 'lantern'))),
      documents: [{ id: 'a', content: 'A.' }],
    });
    expect(told(explicit.reply).recognised).toBeUndefined();
    await ask(gateway, chat(question(tagged('harbour', 'lantern'))));
    const large = chat(question(tagged('lantern', 'harbour')), { role: 'user', content: 'x'.repeat(4_194_304) });
    expect((await ask(gateway, large)).body).toBe(JSON.stringify(large));
  });

  it('what is no JSON is left to the engine', async () => {
    const gateway = await stand(answerAsAsked);
    const body = '{"messages":[{"role":"user",}]}';
    expect((await ask(gateway, body)).body).toBe(body);
  });
});

it('a defect sends the body as it came, and counts it', async () => {
  const gateway = await stand(
    answerAsAsked,
    {},
    {
      arrange: () => {
        throw new TypeError('a defect');
      },
    },
  );
  const request = chat(question(tagged('lantern', 'harbour')));
  const { reply, body } = await ask(gateway, request);
  expect(body).toBe(JSON.stringify(request));
  expect(reply.status).toBe(200);
  expect(told(reply).fallback).toBe('original');
  const metrics = (await send(`${gateway.gateway.url}/metrics`)).text;
  expect(metrics).toContain('warmpath_fail_open_total{fallback="original"} 1');
});

it('what was recognised is counted', async () => {
  const gateway = await stand(answerAsAsked);
  await ask(gateway, chat(question(tagged('lantern', 'harbour'))));
  const metrics = (await send(`${gateway.gateway.url}/metrics`)).text;
  expect(metrics).toContain('warmpath_recognised_documents_total 2');
  expect(metrics).toContain('warmpath_sent_messages 1');
});
