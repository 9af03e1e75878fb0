/** Phrases whose words are neutral only together. */
const PHRASES =
  /\b(?:(?:the )?following (?:context|pieces of|documents|information|passages|sources|text)|at the end|(?:context information|information|context|question|documents) (?:is|are) below|(?:not|without|no) prior knowledge|three sentences maximum|step by step|as much as|as well as)\b/g;

/**
 * Words of prompts that say nothing about the order of documents, in whatever way they are put together. None of them
 * counts, compares, or names a place or a time.
 */
const WORDS: ReadonlySet<string> = new Set(
  `a about accurate accurately act ai all always an and answer answered answering answers any are as ask asked asks
  assistance assistant assistants assists available base based be brief briefly but by can cannot chat chatbot clear
  clearly concise concisely contain contains content context contexts could customer data detailed
  do document documentation documents does don doesn don't doesn't enough excerpt excerpts expert explain fact find for found friendly from generate give given has have help helpful honest how human i if in include
  includes information input insufficient is isn isn't it its just keep knowledge known know language make may me
  must my need never no not of on only or our paragraph passage passages piece pieces please polite precise provide
  provided provides query question questions reference references relevant reply respond response result results
  retrieved s say says search sentence sentences should simple simply snippet snippets solely source sources
  something state states sure system t task tasks text texts than that the their them there these they this those to
  tool try truthful understand unknown us use used user users uses using want was we well what when which with within
  without won word words write you your yourself`.split(/\s+/),
);

const WORD = /[\p{L}\p{M}\p{N}]+(?:'(?:t|re|s))?/gu;

/**
 * Whether a program's text certainly says nothing about the order of documents. Every other text may: one in another
 * language, or with one word that is not known to be neutral. O(length).
 */
export function isNeutralText(text: string): boolean {
  const words = text.toLowerCase().replaceAll('’', "'").replaceAll(PHRASES, ' ').match(WORD) ?? [];
  return words.every((word) => WORDS.has(word) || (word.endsWith("'s") && WORDS.has(word.slice(0, -2))));
}
