// The bodies that the benchmark sends: the same in every run.
import { draws, prose } from './draw.js';

const VARIED = 300;
const DOCUMENTS = 60;
const PER_REQUEST = 20;
const WORDS_PER_DOCUMENT = 230;
const QUESTION = 'Question number ';
const SYSTEM = { role: 'system', content: 'Answer from the documents, and say so when they do not tell.' };

/** Each kind of body as bytes, in the order in which they are sent. */
export function bodies() {
  const next = draws();
  const pool = Array.from({ length: DOCUMENTS }, (_, i) => {
    return { id: `doc-${i}`, title: `Document ${i}`, content: prose(next, WORDS_PER_DOCUMENT) };
  });
  const requests = Array.from({ length: VARIED }, (_, i) => {
    return { documents: drawn(pool, next), question: `${QUESTION}${i}?` };
  });
  const ofDocuments = requests.map(({ documents, question }) =>
    bytes({ messages: [SYSTEM, { role: 'user', content: question }], documents, temperature: 0 }),
  );
  const inTags = requests.map(({ documents, question }) => {
    const elements = documents.map(
      ({ id, title, content }) => `<document id="${id}" title="${title}">\n${content}\n</document>\n`,
    );
    const content = `<warmpath-documents>\n${elements.join('')}</warmpath-documents>\n${question}`;
    return bytes({ messages: [SYSTEM, { role: 'user', content }], temperature: 0 });
  });
  const prompt = prose(next, PER_REQUEST * WORDS_PER_DOCUMENT);
  return {
    small: [bytes({ messages: [{ role: 'user', content: 'Hi' }] })],
    prompt: [bytes({ messages: [SYSTEM, { role: 'user', content: `${prompt}\n\nQuestion?` }], temperature: 0 })],
    documents: ofDocuments,
    tags: inTags,
  };
}

/** The same bodies with another question each time: no prompt comes twice, its documents do. */
export function neverAsked(given) {
  return marked(given, (text, mark) => text.replace(QUESTION, `Question ${mark} of number `));
}

/** Bodies whose every document is new: the gateway has nothing to remember them by. */
export function neverSeen(given) {
  return marked(given, (text, mark) => text.replace(/"(id|content)":"/g, (start) => `${start}n${mark}-`));
}

/** The same bodies, answered by a stream of so many chunks. */
export function streamed(given, chunks) {
  return given.map((body) => Buffer.from(`${body.subarray(0, -1)},"stream":true,"max_tokens":${chunks}}`));
}

/** Bodies that are made when they are sent, each with a number of its own. */
function marked(given, write) {
  const texts = given.map(String);
  let mark = 0;
  return { length: texts.length, at: (i) => write(texts[i], mark++) };
}

function bytes(body) {
  return Buffer.from(JSON.stringify({ model: 'm', ...body }));
}

function drawn(pool, next) {
  const left = pool.slice();
  return Array.from({ length: PER_REQUEST }, () => left.splice(next(left.length), 1)[0]);
}
