import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  arrange,
  type ChatMessage,
  chatPreamble,
  estimateTokens,
  prepareDocuments,
  type RenderOptions,
  renderChat,
  renderCompletion,
  renderDocument,
  renderHint,
  ServedHistory,
} from '../src/index.js';
import { canonicalJson, completionPreamble, hintTokens, LAYOUT_NAMES, TEMPLATE_NAMES } from '../src/internal.js';
import { movedChains } from '../src/render/layout.js';
import { documentName } from '../src/render/template.js';
import { anyText } from './arbitraries.js';
import { historyOf } from './served.js';

const options: RenderOptions = { template: 'xml', layout: 'question' };

/** Documents c, b, a in retrieval order, arranged as a, b, c. */
function moved(title?: string) {
  const { documents } = prepareDocuments(
    [...'cba'].map((id) => ({ id, content: `Text of ${id}.`, ...(title && { title: `${title} ${id}` }) })),
  );
  return arrange({ documents, policy: 'sorted' }, new ServedHistory(), 0);
}

describe('templates', () => {
  const document = { label: 'd1', title: 'On "caches" & <trees>', content: 'First line.\n\nLast line. \n\n' };

  test('xml', () => {
    expect(renderDocument(document, 'xml')).toBe(
      '<document id="d1" title="On &quot;caches&quot; &amp; &lt;trees&gt;">\nFirst line.\n\nLast line.\n</document>\n',
    );
    expect(renderDocument({ ...document, title: undefined }, 'xml')).toBe(
      '<document id="d1">\nFirst line.\n\nLast line.\n</document>\n',
    );
  });

  test('brackets', () => {
    expect(renderDocument(document, 'brackets')).toBe('[d1] On "caches" & <trees>\nFirst line.\n\nLast line.\n\n');
    expect(renderDocument({ ...document, title: undefined }, 'brackets')).toBe('[d1]\nFirst line.\n\nLast line.\n\n');
  });

  test('plain', () => {
    expect(renderDocument(document, 'plain')).toBe('## On "caches" & <trees> (d1)\nFirst line.\n\nLast line.\n\n');
    expect(renderDocument({ ...document, title: undefined }, 'plain')).toBe('## d1\nFirst line.\n\nLast line.\n\n');
  });

  test('a title never breaks its line', () => {
    for (const template of TEMPLATE_NAMES) {
      const text = renderDocument({ label: 'd', title: ' two\n lines\t\u2028', content: 'x' }, template);
      expect(text.split('\n')[0]).toContain('two lines');
    }
  });

  test('a tag that never comes costs no more than its white space: quadratic time would never end here', () => {
    const content = `<${' '.repeat(1_000_000)}x < / ${'\n'.repeat(1_000_000)}document`;
    expect(renderDocument({ label: 'd', title: undefined, content }, 'xml')).toContain(
      content.replace('< /', '&lt; /'),
    );
  });

  test('no content ends its document or opens another', () => {
    const tag = fc.constantFrom(
      '</document>',
      '</ document >',
      '<document id="x">',
      '</DOCUMENT\n>',
      '<Document>',
      '<\n/document',
    );
    const content = fc.array(fc.oneof(tag, anyText()), { minLength: 1 }).map((parts) => `x${parts.join('')}`);
    fc.assert(
      fc.property(content, anyText(), (text, title) => {
        const rendered = renderDocument({ label: 'd', title, content: text }, 'xml');
        expect(rendered.match(/<\s*\/\s*document\b/gi)).toHaveLength(1);
        expect(rendered.match(/<\s*document\b/gi)).toHaveLength(1);
        expect(rendered.endsWith('\n</document>\n')).toBe(true);
      }),
    );
  });

  test('ordinary text stays as it is, angle brackets included', () => {
    const text = 'if (a < b && c > d) return <documentation/>; // "quoted" 😀';
    expect(renderDocument({ label: 'd', title: undefined, content: text }, 'xml')).toContain(`\n${text}\n`);
  });

  test('every template gives well-formed text that ends in its separator, whatever the document holds', () => {
    fc.assert(
      fc.property(fc.constantFrom(...TEMPLATE_NAMES), anyText(), anyText(), (template, title, content) => {
        const rendered = renderDocument({ label: 'd', title, content }, template);
        expect(rendered).not.toMatch(/\p{Surrogate}/u);
        expect(rendered).toMatch(template === 'xml' ? /\S*\n<\/document>\n$/ : /\n\n$/);
        expect(renderDocument({ label: 'd', title, content: `${content} \n\t` }, template)).toBe(rendered);
      }),
    );
  });
});

describe('the order hint', () => {
  test('says the retrieval order, word for word', () => {
    expect(renderHint(moved(), 'xml')).toBe('In order of relevance: [c] > [b] > [a].\n');
  });

  test('says only what moved, and all of it: the retrieval order can be read off', () => {
    fc.assert(
      fc.property(fc.shuffledSubarray([...Array(9).keys()], { minLength: 9 }), fc.nat(9), (shuffled, length) => {
        const order = shuffled.filter((rank) => rank < length);
        const chains = movedChains(order);
        const moved = new Set(chains.flatMap((chain) => chain.slice(1)));
        const read = order.filter((rank) => !moved.has(rank));
        for (const [first, ...others] of chains) read.splice(read.indexOf(first!) + 1, 0, ...others);
        expect(read).toEqual([...Array(length).keys()]);
        // Never more than one that moved could be left out.
        for (const chain of chains) expect(chain.length).toBeGreaterThan(1);
      }),
      { numRuns: 500 },
    );
    expect(movedChains([3, 0, 1, 2, 4])).toEqual([[2, 3]]);
    expect(movedChains([1, 3, 0, 2, 4])).toEqual([
      [0, 1],
      [2, 3],
    ]);
    const { documents } = prepareDocuments([...'abcde'].map((id) => ({ id, content: id })));
    const order = [1, 3, 0, 2, 4];
    const arrangement = { ...moved(), documents: order.map((rank) => documents[rank]!), order };
    expect(renderHint(arrangement, 'xml')).toBe('In order of relevance: [a] > [b], [c] > [d].\n');
  });

  test('is estimated by the names in it, each with what stands around it', () => {
    fc.assert(
      fc.property(fc.shuffledSubarray([...Array(9).keys()], { minLength: 9 }), anyText(), (order, text) => {
        const { documents } = prepareDocuments(order.map((number) => ({ id: `${text}${number}`, content: 'Text.' })));
        const names = movedChains(order).flatMap((chain) => chain.map((rank) => documents[rank]!.label));
        const wording = names.length === 0 ? 0 : estimateTokens('In order of relevance: \n.');
        const tokens = names.reduce((sum, name) => sum + estimateTokens(`[${name}] > `), wording);
        expect(hintTokens(documents, order)).toBe(tokens);
      }),
    );
  });

  test('in `plain`, names documents as the prompt does, by title and label', () => {
    expect(renderHint(moved('Title'), 'plain')).toBe(
      'In order of relevance: [Title c (c)] > [Title b (b)] > [Title a (a)].\n',
    );
    expect(renderHint(moved(), 'plain')).toBe(renderHint(moved(), 'brackets'));
  });

  test('tells chunks of one page apart, in every template', () => {
    const { documents } = prepareDocuments(['one', 'two', 'three'].map((content) => ({ title: 'The page', content })));
    for (const template of TEMPLATE_NAMES) {
      const names = documents.map((document) => documentName(document, template));
      expect(new Set(names).size).toBe(3);
      for (const [place, name] of names.entries()) expect(renderDocument(documents[place]!, template)).toContain(name);
    }
  });

  test('is empty when nothing moved', () => {
    const { documents } = prepareDocuments([{ content: 'x' }]);
    expect(renderHint(arrange({ documents }, new ServedHistory(), 0), 'xml')).toBe('');
  });
});

describe('layouts', () => {
  const body = ['a', 'b', 'c'].map((id) => `[${id}]\nText of ${id}.\n\n`).join('');
  const hint = 'In order of relevance: [c] > [b] > [a].\n';
  const system: ChatMessage = { role: 'system', content: 'Be brief.' };
  const history: ChatMessage[] = [
    { role: 'user', content: 'Hello', name: 'ann' },
    { role: 'assistant', content: 'Hi', refusal: null },
  ];
  const question: ChatMessage = { role: 'user', content: 'Why?' };
  const messages = [system, ...history, question];
  const render = (layout: RenderOptions['layout'], input: readonly ChatMessage[]) =>
    renderChat(input, moved(), { template: 'brackets', layout });

  test('question: documents, hint and question in the last user message', () => {
    const rendered = render('question', messages);
    expect(rendered).toEqual([system, ...history, { role: 'user', content: `${body}${hint}Why?` }]);
    expect(rendered[1]).toBe(history[0]);
  });

  test('message: documents in a message of their own, the hint opens the question', () => {
    expect(render('message', messages)).toEqual([
      system,
      ...history,
      { role: 'user', content: body },
      { role: 'user', content: `${hint}Why?` },
    ]);
  });

  test('system: documents at the end of the system message', () => {
    expect(render('system', messages)).toEqual([
      { role: 'system', content: `Be brief.\n\n${body}` },
      ...history,
      { role: 'user', content: `${hint}Why?` },
    ]);
    expect(render('system', [question])).toEqual([
      { role: 'system', content: body },
      { role: 'user', content: `${hint}Why?` },
    ]);
    expect(render('system', [{ role: 'developer', content: null }, question])[0]).toEqual({
      role: 'developer',
      content: body,
    });
  });

  test('content parts get a text part, the others stay the objects they were', () => {
    const image = { type: 'image_url', image_url: { url: 'data:,' } };
    const parts: ChatMessage = { role: 'user', content: [image, { type: 'text', text: 'Why?' }] };
    const rendered = render('question', [parts])[0]!;
    expect(rendered.content).toEqual([{ type: 'text', text: body + hint }, image, { type: 'text', text: 'Why?' }]);
    const inSystem = render('system', [
      { role: 'system', content: [{ type: 'text', text: 'Be brief.' }] },
      question,
    ])[0]!;
    expect(inSystem.content).toEqual([
      { type: 'text', text: 'Be brief.' },
      { type: 'text', text: body },
    ]);
  });

  test('messages after the last user message stay after it', () => {
    const tool: ChatMessage = { role: 'tool', content: 'result', tool_call_id: 'x' };
    for (const layout of LAYOUT_NAMES) expect(render(layout, [...messages, tool]).at(-1)).toBe(tool);
  });

  test('never mutates its input; without documents it is the input', () => {
    const frozen = Object.freeze(messages.map((message) => Object.freeze({ ...message })));
    const none = arrange({ documents: [] }, new ServedHistory(), 0);
    for (const layout of LAYOUT_NAMES) {
      expect(render(layout, frozen)).toEqual(render(layout, frozen));
      expect(renderChat(frozen, none, { template: 'xml', layout })).toBe(frozen);
    }
  });

  test('what bad input gets', () => {
    for (const layout of LAYOUT_NAMES) {
      expect(() => render(layout, [system])).toThrow(
        expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'messages' }),
      );
      expect(() => chatPreamble([system], 'model', { template: 'xml', layout })).toThrow(
        expect.objectContaining({ code: 'WARMPATH_INVALID_REQUEST', path: 'messages' }),
      );
    }
    const odd = { role: 'user', content: 7 } as unknown as ChatMessage;
    expect(() => render('question', [system, odd])).toThrow(expect.objectContaining({ path: 'messages[1].content' }));
  });

  test('completion: documents, hint, prompt', () => {
    expect(renderCompletion('Q: why?\nA:', moved(), { template: 'brackets' })).toBe(`${body}${hint}Q: why?\nA:`);
  });
});

describe('the preamble', () => {
  const message = fc.record({
    role: fc.constantFrom('system', 'user', 'assistant', 'developer'),
    content: fc.oneof(anyText({ maxLength: 4 }), fc.constant([{ type: 'text', text: 'x' }])),
  });
  const conversation = fc
    .array(message, { maxLength: 5 })
    .map((messages) => [...messages, { role: 'user', content: 'Q?' }]);

  /** The prompt as a chat template would write it, up to the first document. */
  function textBeforeDocuments(messages: readonly ChatMessage[], layout: RenderOptions['layout']): string {
    const { documents } = prepareDocuments([{ id: 'marker-document', content: 'M' }]);
    const rendered = renderChat(messages, arrange({ documents }, new ServedHistory(), 0), { template: 'xml', layout });
    const text = rendered
      .map(
        ({ role, content }) =>
          `<|${role}|>${typeof content === 'string' ? content : content?.map((part) => part.text).join('')}`,
      )
      .join('<|end|>');
    return text.slice(0, text.indexOf('<document id="marker-document">'));
  }

  test('equal keys mean equal text before the documents', () => {
    fc.assert(
      fc.property(conversation, conversation, fc.constantFrom(...LAYOUT_NAMES), (one, other, layout) => {
        const [a, b] = [one, other].map((messages) => chatPreamble(messages, 'model', { template: 'xml', layout }).key);
        if (a === b) expect(textBeforeDocuments(one, layout)).toBe(textBeforeDocuments(other, layout));
      }),
      { numRuns: 500 },
    );
  });

  test('what comes after the documents does not matter, nor does the order of fields', () => {
    for (const layout of LAYOUT_NAMES) {
      const key = (messages: readonly ChatMessage[]) =>
        chatPreamble(messages, 'model', { template: 'xml', layout }).key;
      const first = key([
        { role: 'system', content: 'S' },
        { role: 'user', content: 'One?' },
      ]);
      expect(
        key([
          { content: 'S', role: 'system' },
          { role: 'user', content: [{ type: 'text', text: 'Two?' }] },
        ]),
      ).toBe(first);
      expect(
        key([
          { role: 'system', content: 'T' },
          { role: 'user', content: 'One?' },
        ]),
      ).not.toBe(first);
    }
  });

  test('scope, template and layout are part of it, text is not readable in it', () => {
    const messages = [
      { role: 'system', content: 'a secret' },
      { role: 'user', content: 'Q?' },
    ];
    const keys = new Set<string>();
    for (const scope of ['model-1', 'model-2']) {
      for (const template of TEMPLATE_NAMES) {
        for (const layout of LAYOUT_NAMES) keys.add(chatPreamble(messages, scope, { template, layout }).key);
        keys.add(completionPreamble(scope, { template }).key);
      }
    }
    expect(keys.size).toBe(2 * TEMPLATE_NAMES.length * (LAYOUT_NAMES.length + 1));
    for (const key of keys) expect(key).toMatch(/^preamble#[0-9a-f]{16}$/);
  });

  test('counts the text before the documents', () => {
    const countTokens = (text: string) => text.length;
    const count = (layout: RenderOptions['layout']) =>
      chatPreamble(
        [
          { role: 'system', content: '12345' },
          { role: 'user', content: '123' },
          { role: 'assistant', content: [{ type: 'text', text: '12' }] },
          { role: 'user', content: 'Q?' },
        ],
        'm',
        { template: 'xml', layout, countTokens },
      ).tokens;
    expect(count('question')).toBe(5 + 3 + 2 + 4 * 5);
    expect(count('message')).toBe(5 + 3 + 2 + 4 * 5);
    expect(count('system')).toBe(5 + 5);
    expect(completionPreamble('m', options).tokens).toBe(0);
  });
});

test('two requests that share preamble and leading documents share every byte before the first that differs', () => {
  const texts = fc.uniqueArray(
    anyText({ minLength: 1 }).filter((text) => /\S/.test(text)),
    { minLength: 3, maxLength: 8 },
  );
  fc.assert(
    fc.property(
      texts,
      fc.constantFrom(...TEMPLATE_NAMES),
      fc.constantFrom(...LAYOUT_NAMES),
      (contents, template, layout) => {
        const ids = contents.map((_, index) => `doc-${index}`);
        const input = contents.map((content, index) => ({ id: ids[index]!, content }));
        const history = historyOf([]);
        const arrangementOf = (chosen: typeof input) =>
          arrange({ documents: prepareDocuments(chosen).documents }, history, 0);
        const flat = (chosen: typeof input, question: string) =>
          renderChat(
            [
              { role: 'system', content: 'S' },
              { role: 'user', content: question },
            ],
            arrangementOf(chosen),
            { template, layout },
          )
            .map(({ role, content }) => `${role}:${String(content)}`)
            .join('\n');
        const shared = input.slice(0, -1);
        const one = flat(shared, 'One?');
        const other = flat(input, 'Another?');
        const leading = shared
          .map((document) =>
            renderDocument({ label: document.id, title: undefined, content: document.content }, template),
          )
          .join('');
        const end = one.indexOf(leading) + leading.length;
        expect(one.indexOf(leading)).toBeGreaterThan(0);
        expect(other.slice(0, end)).toBe(one.slice(0, end));
      },
    ),
  );
});

test('canonicalJson: same data, same text', () => {
  expect(canonicalJson({ b: [{ d: 1, c: null }], a: 'x' })).toBe('{"a":"x","b":[{"c":null,"d":1}]}');
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(JSON.parse(canonicalJson(value))).toEqual(JSON.parse(JSON.stringify(value)));
    }),
  );
});
