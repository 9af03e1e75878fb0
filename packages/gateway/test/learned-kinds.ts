import type { PromptText } from '@warmpath/core';
import { PromptKinds } from '@warmpath/core/internal';

const WORDS = 'harbour lantern market bridge orchard quarry chapel tunnel meadow cannery granary ferry'.split(' ');
const PASSAGES = WORDS.map((word, i) => `The ${word} is what the town has built, and its keeper has the key ${i}.`);

/** Four passages for the prompt of this number. */
export function passagesOf(number: number): readonly string[] {
  let state = Math.imul(number + 1, 2_654_435_761) >>> 0;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const rest = [...PASSAGES];
  return Array.from({ length: 4 }, () => rest.splice(random(rest.length), 1)[0]!);
}

export type WritePrompt = (passages: readonly string[], number: number) => readonly PromptText[];

/** A prompt that says something and has the question behind the documents. */
export const questionLast: WritePrompt = (passages, number) => [
  {
    role: 'user',
    text: `Use the following context.\nBe brief.\n\n${passages.join('\n\n')}\n\nQuestion: Who keeps key ${number}?\nHelpful Answer:`,
  },
];

/** The same with labels by position. */
export const numbered: WritePrompt = (passages, number) => [
  {
    role: 'user',
    text: `Sources of the archive:\n${passages.map((text, i) => `[${i + 1}] ${text}`).join('\n\n')}\n\nQuestion: Who keeps ${number}?`,
  },
];

/** The same with the question in front. */
export const questionFirst: WritePrompt = (passages, number) => [
  {
    role: 'user',
    text: `Question: Who keeps key ${number}?\nUse this context:\n\n${passages.join('\n\n')}\n\nAnswer briefly.`,
  },
];

/** Prompts after which the text counts as a program's. */
const PROMPTS = 120;

/** Learns a program's prompts for a tenant. */
function learn(kinds: PromptKinds, tenant: string, write: WritePrompt = questionLast): void {
  for (let number = 0; number < PROMPTS; number++) kinds.learn(tenant, write(passagesOf(number), number));
}

/** What is known of tenants that each use one program. */
export function learnedKinds(...tenants: (readonly [tenant: string, write: WritePrompt])[]): PromptKinds {
  const kinds = new PromptKinds({ salt: 'salt', maxBytes: 8_000_000 });
  for (const [tenant, write] of tenants) learn(kinds, tenant, write);
  return kinds;
}
