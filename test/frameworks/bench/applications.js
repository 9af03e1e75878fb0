import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { createStuffDocumentsChain } from '@langchain/classic/chains/combine_documents';
import { createRetrievalChain } from '@langchain/classic/chains/retrieval';
import { Document } from '@langchain/core/documents';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { BaseRetriever as LangChainRetriever } from '@langchain/core/retrievers';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { RetrieverQueryEngine } from '@llamaindex/core/query-engine';
import { getResponseSynthesizer } from '@llamaindex/core/response-synthesizers';
import { BaseRetriever as LlamaIndexRetriever } from '@llamaindex/core/retriever';
import { TextNode } from '@llamaindex/core/schema';
import { OpenAI as LlamaIndexOpenAI } from '@llamaindex/openai';
import { generateText } from 'ai';
import { createAgent, dynamicSystemPromptMiddleware } from 'langchain';
import OpenAI from 'openai';
import { z } from 'zod';

const MODEL = 'warmpath-tiny';

const langChainModel = (baseURL) =>
  new ChatOpenAI({ model: MODEL, maxRetries: 0, temperature: 0, apiKey: 'x', configuration: { baseURL } });
const langChainDocuments = (passages) =>
  passages.map(({ id, text }) => new Document({ pageContent: text, metadata: { source: `${id}.md` } }));

/** Finds the passages of the question that is asked next. */
class NextPassages extends LangChainRetriever {
  lc_namespace = ['bench'];
  passages = [];

  async _getRelevantDocuments() {
    return langChainDocuments(this.passages);
  }
}

class NextNodes extends LlamaIndexRetriever {
  passages = [];

  async _retrieve() {
    return this.passages.map(({ text }) => ({ node: new TextNode({ text }), score: 1 }));
  }
}

const stuffChain = (messages) => async (baseURL) => {
  const prompt = ChatPromptTemplate.fromMessages(messages);
  const chain = await createStuffDocumentsChain({ llm: langChainModel(baseURL), prompt });
  return ({ question, passages }) => chain.invoke({ input: question, context: langChainDocuments(passages) });
};

const answerOf = ({ messages }) => messages.at(-1).text;

const plainSdk = (bodyOf) => (baseURL) => {
  const client = new OpenAI({ apiKey: 'x', baseURL, maxRetries: 0 });
  return async (asked) => {
    const completion = await client.chat.completions.create({ model: MODEL, ...bodyOf(asked) });
    return completion.choices[0].message.content;
  };
};
const user = (content) => ({ messages: [{ role: 'user', content }] });

const aiSdk = (promptOf) => (baseURL) => {
  const model = createOpenAICompatible({ name: 'bench', baseURL, apiKey: 'x' }).chatModel(MODEL);
  return async (asked) => (await generateText({ model, maxRetries: 0, ...promptOf(asked) })).text;
};

/** One of the applications in `frameworks.py`, a question a line. */
const python = (name) => (baseURL, interpreter) => {
  const script = new URL('./frameworks.py', import.meta.url).pathname;
  const child = spawn(interpreter, [script, name, baseURL], { stdio: ['pipe', 'pipe', 'inherit'] });
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const ask = async ({ question, passages }) => {
    child.stdin.write(`${JSON.stringify({ question, passages: passages.map(({ text }) => text) })}\n`);
    const { value, done } = await answers.next();
    if (done) throw new Error(`${name} ended`);
    return JSON.parse(value);
  };
  return Object.assign(ask, { close: () => child.stdin.end() });
};

const CITED_BY_NUMBER = /\[(\d+)\] $/;

/**
 * Programs as users of each framework write them, none of which knows of Warmpath. `documents`: how their places show:
 * in a field, by the form of the prompt, or only because passages come again (`learned`). `label` stands in front of a
 * passage.
 */
export const APPLICATIONS = [
  {
    name: 'plain SDK, field `documents`',
    documents: 'field',
    // The field's documents stand in tags with ids of their own.
    open: plainSdk(({ question, passages }) => ({
      ...user(question),
      documents: passages.map(({ id, text }) => ({ id, content: text })),
    })),
  },
  {
    name: 'LangChain.js, `createStuffDocumentsChain`',
    documents: 'learned',
    open: stuffChain([
      [
        'system',
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer the question. If you don't know the answer, say that you don't know. Use three sentences maximum and keep the answer concise.\n\n{context}",
      ],
      ['human', '{input}'],
    ]),
  },
  {
    name: 'LangChain.js, retrieval chain',
    documents: 'learned',
    open: async (baseURL) => {
      const prompt = ChatPromptTemplate.fromMessages([
        ['system', 'Answer any use questions based solely on the context below:\n\n<context>\n{context}\n</context>'],
        ['placeholder', '{chat_history}'],
        ['human', '{input}'],
      ]);
      const retriever = new NextPassages();
      const combineDocsChain = await createStuffDocumentsChain({ llm: langChainModel(baseURL), prompt });
      const chain = await createRetrievalChain({ retriever, combineDocsChain });
      return async ({ question, passages }) => {
        retriever.passages = passages;
        return (await chain.invoke({ input: question })).answer;
      };
    },
  },
  {
    name: 'LangChain.js, `createAgent` with retrieved context in its prompt',
    documents: 'learned',
    open: (baseURL) => {
      const retriever = new NextPassages();
      const agent = createAgent({
        model: langChainModel(baseURL),
        tools: [],
        middleware: [
          dynamicSystemPromptMiddleware(async (state) => {
            const found = await retriever.invoke(state.messages.at(-1).text);
            const context = found.map(({ pageContent }) => pageContent).join('\n\n');
            return `You are a helpful assistant. Use the following context in your response:\n\n${context}`;
          }),
        ],
      });
      return async ({ question, passages }) => {
        retriever.passages = passages;
        return answerOf(await agent.invoke({ messages: [{ role: 'user', content: question }] }));
      };
    },
  },
  {
    name: 'LangChain.js, `createAgent` with a retrieval tool',
    documents: 'behind the question',
    open: (baseURL) => {
      const retriever = new NextPassages();
      const retrieve = tool(
        async ({ query }) => {
          const found = await retriever.invoke(query);
          const text = found.map((doc) => `Source: ${doc.metadata.source}\nContent: ${doc.pageContent}`).join('\n');
          return [text, found];
        },
        {
          name: 'retrieve',
          description: 'Retrieve information related to a query.',
          schema: z.object({ query: z.string() }),
          responseFormat: 'content_and_artifact',
        },
      );
      const systemPrompt =
        'You have access to a tool that retrieves context from a blog post. Use the tool to help answer user queries.';
      const agent = createAgent({ model: langChainModel(baseURL), tools: [retrieve], systemPrompt });
      return async ({ question, passages }) => {
        retriever.passages = passages;
        return answerOf(await agent.invoke({ messages: [{ role: 'user', content: question }] }));
      };
    },
  },
  {
    name: 'LangChain for Python, `create_agent` with retrieved context in its prompt',
    documents: 'learned',
    isPython: true,
    open: python('langchain-agent'),
  },
  {
    name: 'LangChain for Python, `rlm/rag-prompt`',
    documents: 'behind the question',
    isPython: true,
    open: python('langchain-rag-prompt'),
  },
  {
    name: 'AI SDK, passages in `system`, a line each',
    documents: 'learned',
    open: aiSdk(({ question, passages }) => ({
      system: `You answer questions. Use this context:\n${passages.map(({ text }) => text).join('\n')}`,
      prompt: question,
    })),
  },
  {
    name: 'AI SDK, `JSON.stringify(docs)`',
    documents: 'form',
    label: /"id":"([\w-]+)","content":"$/,
    cited: ({ id }) => id,
    open: aiSdk(({ question, passages }) => ({
      prompt: `Answer the question from these documents and cite their ids: ${JSON.stringify(
        passages.map(({ id, text }) => ({ id, content: text })),
      )}\n\nQuestion: ${question}`,
    })),
  },
  {
    name: 'LlamaIndex.TS, query engine, nodes without metadata',
    documents: 'learned',
    open: (baseURL) => {
      const retriever = new NextNodes();
      const llm = new LlamaIndexOpenAI({ model: MODEL, apiKey: 'x', baseURL, temperature: 0, maxRetries: 0 });
      const engine = new RetrieverQueryEngine(retriever, getResponseSynthesizer('compact', { llm }));
      return async ({ question, passages }) => {
        retriever.passages = passages;
        return (await engine.query({ query: question })).toString();
      };
    },
  },
  {
    name: 'LlamaIndex for Python, citation engine',
    documents: 'form',
    isPython: true,
    label: /Source (\d+):\n$/,
    open: python('llamaindex-citations'),
  },
  {
    name: 'Open WebUI, its default RAG template',
    documents: 'form',
    label: /<source id="(\d+)"[^>]*>$/,
    open: plainSdk(({ question, passages }) => user(openWebUi(question, passages))),
  },
  {
    name: 'plain SDK, `[1] …` and “cite [1]”',
    documents: 'form',
    label: CITED_BY_NUMBER,
    open: plainSdk(({ question, passages }) =>
      user(
        `Answer the question from the sources below. Cite each source that you use by its number, such as [1].\n\n${passages
          .map(({ text }, place) => `[${place + 1}] ${text}`)
          .join('\n\n')}\n\nQuestion: ${question}`,
      ),
    ),
  },
];

/** The message that Open WebUI sends: its default template, the sources in tags, and the question behind. */
function openWebUi(question, passages) {
  const sources = passages.map(({ id, text }, i) => `<source id="${i + 1}" name="${id}.pdf">${text}</source>`);
  return `### Task:
Respond to the user query using the provided context, incorporating inline citations in the format [id] **only when the <source> tag includes an explicit id attribute** (e.g., <source id="1">).

### Guidelines:
- If you don't know the answer, clearly state that.
- If uncertain, ask the user for clarification.
- Respond in the same language as the user's query.
- If the context is unreadable or of poor quality, inform the user and provide the best possible answer.
- If the answer isn't present in the context but you possess the knowledge, explain this to the user and provide the answer using your own understanding.
- **Only include inline citations using [id] (e.g., [1], [2]) when the <source> tag includes an id attribute.**
- Do not cite if the <source> tag does not contain an id attribute.
- Do not use XML tags in your response.
- Ensure citations are concise and directly related to the information provided.

### Example of Citation:
If the user asks about a specific topic and the information is found in a source with a provided id attribute, the response should include the citation like in the following example:
* "According to the study, the proposed method increases efficiency by 20% [1]."

### Output:
Provide a clear and direct response to the user's query, including inline citations in the format [id] only when the <source> tag with id attribute is present in the context.

<context>
${sources.join('\n')}
</context>

${question}`;
}
