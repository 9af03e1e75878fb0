// The requests of the comparison before vLLM: questions of a data set in BEIR's layout, each with the passages that
// BM25 finds, and the prompts that are made of them.
import {
  arrange,
  estimateTokens,
  planBatch,
  prepareRequest,
  renderChat,
  renderDocument,
  ServedHistory,
} from '@warmpath/core';
import { readQuestions } from '../../lab/dist/index.js';

const TOP_K = 5;
export const SYSTEM = 'Answer the question using only the provided documents. Answer in as few words as possible.';
const STYLE = { template: 'xml', layout: 'question' };

/** `{question, documents}` of each question, documents in retrieval order. */
export async function readRequests(folder, limit) {
  const { questions } = await readQuestions(folder, { topK: TOP_K, limit });
  return questions.map(({ text, passages }) => ({
    question: text,
    documents: passages.map(({ id, title, content }) => ({ id, ...(title && { title }), content })),
  }));
}

const chatOf = (question) => [
  { role: 'system', content: SYSTEM },
  { role: 'user', content: question },
];

/** Documents beside the messages: what a client sends to the gateway. */
export const withField = ({ question, documents }) => ({ messages: chatOf(question), documents });

/** Documents in the text, as in LangChain's "stuff" prompt: from a client that knows nothing of Warmpath. */
export function inText({ question, documents }) {
  const texts = documents.map(({ title, content }) => (title === undefined ? content : `${title}\n${content}`));
  return {
    messages: [
      {
        role: 'user',
        content: `Use the following pieces of context to answer the question at the end. If you don't know the answer, just say that you don't know, don't try to make up an answer.\n\n${texts.join('\n\n')}\n\nQuestion: ${question}\nHelpful Answer:`,
      },
    ],
  };
}

/** The prompt that a gateway writes that moves nothing. */
export const inRetrievalOrder = ({ question, documents }) => ({
  messages: renderChat(chatOf(question), arranged(documents), STYLE),
});

/** The same in an order that is drawn. `random(limit)` returns whole numbers below the limit. */
export const inRandomOrder = (random) => {
  return ({ question, documents }) => {
    const rest = [...documents];
    const drawn = documents.map(() => rest.splice(random(rest.length), 1)[0]);
    return inRetrievalOrder({ question, documents: drawn });
  };
};

/**
 * All requests as `warmpath plan` sends them: in its order, with documents in its order and the hint of the gateway.
 *
 * @param capacity tokens that the engine's cache holds
 */
export function planned(requests, { capacity, hints }) {
  const tokens = new Map();
  for (const { documents } of requests) {
    for (const document of prepareRequest({ documents }).documents) {
      tokens.set(document.id, estimateTokens(renderDocument(document, STYLE.template)));
    }
  }
  const { steps } = planBatch(
    requests.map(({ documents }) => documents.map(({ id }) => id)),
    { capacity, tokens: (id) => tokens.get(id) },
  );
  return steps.map(({ index, documents: ids }) => {
    const { question, documents } = requests[index];
    const order = ids.map((id) => documents.findIndex((document) => document.id === id));
    return { messages: renderChat(chatOf(question), arranged(documents, { order, hints }), STYLE) };
  });
}

/** An arrangement in the order given: ranks by place. */
function arranged(documents, { order = documents.map((_, rank) => rank), hints = true } = {}) {
  const policy = { name: 'given', arrange: () => ({ order, cachedTokens: 0, cachedDocuments: 0, cutShort: false }) };
  const request = { ...prepareRequest({ documents, hints }), preamble: { key: '', tokens: 0 }, policy };
  const { trace, ...arrangement } = arrange(request, new ServedHistory(), 0);
  if (trace.fellBack !== undefined) throw new Error(trace.fellBack);
  return arrangement;
}
