/** What every application asks: 30 questions over 10 passages, and the questions before them. */

const TOPICS = ['harbour', 'lantern', 'orchard', 'glacier', 'bridge', 'clock', 'ferry', 'market', 'quarry', 'mill'];

const SENTENCES = [
  () => 'Every spring its keepers look after what the winter broke, and the town pays for ropes, lime and timber.',
  (topic) => `Visitors reach the ${topic} by the lower road. It takes them an hour on foot from the old gate.`,
  (topic) => `In dry years the council closes the ${topic} for a month and reads the accounts in public.`,
];

/** Passages of one to three paragraphs, as a text splitter leaves them. */
const PASSAGES = TOPICS.map((topic, number) => {
  const first = `The ${topic} of Velmora was built in ${1900 + 7 * number} by the people of the town, who still keep it.`;
  const more = SENTENCES.slice(0, 1 + (number % 3)).map((write) => write(topic));
  const text = [first, ...more].join(number % 2 === 0 ? '\n\n' : ' ');
  return { id: `doc-${topic}`, topic, year: `${1900 + 7 * number}`, text };
});

/** Questions before a person allows the application's prompts, behind that, and those that are measured. */
const BEFORE_CONSENT = 60;
const BEHIND_CONSENT = 20;
export const MEASURED = 30;

/** Numbers that look random and are the same in each run. */
function* numbers(state) {
  for (;;) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    yield state / 2 ** 32;
  }
}

/** Each with four or five passages, the order of a retriever, and the one that answers it. */
function questions(count, seed) {
  const random = numbers(seed);
  const below = (limit) => Math.floor(random.next().value * limit);
  return Array.from({ length: count }, (_, number) => {
    const rest = [...PASSAGES];
    const passages = Array.from({ length: 4 + (number % 2) }, () => rest.splice(below(rest.length), 1)[0]);
    const asked = below(passages.length);
    const question = `${OPENINGS[number % OPENINGS.length]} did people build the ${passages[asked].topic}, note ${seed + number}?`;
    return { question, passages, asked };
  });
}

const OPENINGS = ['In which year', 'When', 'Tell me: when', 'As of today, when', 'I wonder in which year'];

export const QUESTIONS_BEFORE = questions(BEFORE_CONSENT, 1_000);
export const QUESTIONS_BEHIND = questions(BEHIND_CONSENT, 3_000);
export const QUESTIONS = questions(MEASURED, 5_000);

/** The passage that a prompt asks for; the last question counts. */
export function askedPassage(prompt) {
  const topic = [...prompt.matchAll(/did people build the (\w+), note/g)].at(-1)?.[1];
  return PASSAGES.find((passage) => passage.topic === topic);
}
