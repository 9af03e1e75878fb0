import fc from 'fast-check';

const told = (seed: string) =>
  Array.from(
    { length: 4 },
    (_, i) => `What ${seed} was ${i + 2} years before is told in the book of ${seed} alone.`,
  ).join(' ');

/** Passages of a small world: two share an id and their first words, one is shorter than any hint. */
export const PASSAGES = [
  {
    id: 'harbour',
    text: 'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay of the town.',
  },
  {
    id: 'lantern',
    text: 'Lanterns from the "Tiber" workshop burn colza oil; a full reservoir lasts nine hours, or ten at low flame.',
  },
  {
    id: 'orchard',
    text: 'The north orchard carries forty rows of late pears 🍐, which are picked after the first frost of the year.',
  },
  {
    id: 'orchard',
    text: 'The north orchard carries forty rows of late pears 🍐, which were all felled after the great storm of that year.',
  },
  {
    id: 'glacier',
    text: 'Between two surveys the Aster glacier lost eleven metres of thickness along its margin, C:\\data says, and more since.',
  },
  {
    id: 'velka',
    text: 'Velka is a card game for three; whoever holds the blue seven opens, and the last trick counts for two of the others.',
  },
  { id: 'gate', text: 'Gate 7 opens at nine, but never on a Sunday.' },
].map(({ id, text }) => ({ id, text: id === 'gate' ? text : `${text} ${told(text.slice(-12))}` }));

export type Passage = (typeof PASSAGES)[number];
export const SHORT = PASSAGES[6]!;

const FORMATS = ['tags', 'anthropic', 'json', 'numbered', 'fields'] as const;
export type Format = (typeof FORMATS)[number];

/** What a tool or a retriever would write. */
export function write(format: Format, passages: readonly Passage[]): string {
  switch (format) {
    case 'tags':
      return `<documents>\n${passages.map(({ id, text }) => `<document id="${id}" score="0.5">\n${text}\n</document>`).join('\n')}\n</documents>`;
    case 'anthropic':
      return `<documents>\n${passages
        .map(
          ({ id, text }, i) =>
            `<document index="${i + 1}">\n<source>${id}.md</source>\n<document_content>\n${text}\n</document_content>\n</document>`,
        )
        .join('\n')}\n</documents>`;
    case 'json':
      return JSON.stringify({
        query: 'q',
        results: passages.map(({ id, text }, i) => ({
          url: `https://h.example/${id}`,
          title: id,
          content: text,
          score: i / 8,
        })),
      });
    case 'numbered':
      return `Sources:\n${passages.map(({ text }, i) => `[${i + 1}] ${text}`).join('\n')}`;
    case 'fields':
      return passages.map(({ id, text }) => `Source: ${id}\nContent: ${text}`).join('\n\n');
  }
}

const escaped = new Map(PASSAGES.map(({ text }) => [text, JSON.stringify(text).slice(1, -1)]));

/** How often a passage stands in a text in full, also inside of a JSON string. */
export function copiesIn(text: string, { text: passage }: Passage): number {
  const inJson = escaped.get(passage)!;
  const plain = text.split(passage).length - 1;
  return inJson === passage ? plain : plain + text.split(inJson).length - 1;
}

export interface Message {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly tool_call_id?: string;
}

/** One step of a client: what it retrieved, or what it did to its history. */
export type Step =
  | { readonly kind: 'tool' | 'user'; readonly format: Format; readonly passages: readonly Passage[] }
  /** The model says a passage itself. */
  | { readonly kind: 'quote'; readonly passage: Passage }
  /** The client drops its oldest messages, or goes back by some. */
  | { readonly kind: 'cut' | 'back'; readonly messages: number };

const somePassages = fc
  .array(fc.nat(PASSAGES.length - 1), { minLength: 2, maxLength: 5 })
  .map((places) => places.map((place) => PASSAGES[place]!));

export const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constantFrom('tool' as const, 'user' as const),
        format: fc.constantFrom(...FORMATS),
        passages: somePassages,
      }),
    },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('quote' as const), passage: fc.constantFrom(...PASSAGES) }) },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constantFrom('cut' as const, 'back' as const), messages: fc.nat(4) }),
    },
  ),
  { minLength: 2, maxLength: 8 },
);

/** The client's messages after a step, as it would send them. */
export function afterStep(messages: readonly Message[], step: Step, turn: number): readonly Message[] {
  switch (step.kind) {
    case 'tool':
      return [
        ...messages,
        { role: 'assistant', content: `Searching, ${turn}.` },
        { role: 'tool', tool_call_id: `c${turn}`, content: write(step.format, step.passages) },
      ];
    case 'user':
      return [
        ...messages,
        { role: 'assistant', content: `Noted, ${turn}.` },
        { role: 'user', content: `Documents:\n${write(step.format, step.passages)}\n\nWhat is known of ${turn}?` },
      ];
    case 'quote':
      return [
        ...messages,
        { role: 'assistant', content: `It says: ${step.passage.text}` },
        { role: 'user', content: `And ${turn}?` },
      ];
    case 'cut':
      return messages.slice(Math.min(step.messages, messages.length - 1));
    case 'back':
      return messages.slice(0, Math.max(1, messages.length - step.messages));
  }
}
