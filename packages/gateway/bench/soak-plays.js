// What the soak's client and engine agree about: what may be played, and the answer to a question.
export const REFUSED = 500;
export const NONSENSE = '{"choices": [}, ';
export const FILLER = 'x'.repeat(65_536);

/** Of 10,000 requests so many are played as; the others are answered as a whole. */
export const PLAYS = {
  stream: 500,
  reset: 100,
  garbled: 60,
  cut: 60,
  'cut stream': 60,
  nonsense: 60,
  refused: 60,
  'slow reader': 5,
  'left in an upload': 40,
  'left before an answer': 80,
  'left in a stream': 80,
};

/** What the engine says about a question over these documents, in whatever order. */
export function answerTo(question, names) {
  return `This is the answer to question ${question} over ${names.toSorted().join(' and ') || 'nothing'}.`;
}
