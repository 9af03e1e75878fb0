"""Applications of Python's frameworks. A question is a line of JSON on standard input, an answer one on standard output.

python frameworks.py NAME BASE_URL
"""

import json
import sys

MODEL = "warmpath-tiny"
found = []


def langchain_model(base_url):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=MODEL, base_url=base_url, api_key="x", temperature=0, max_retries=0)


def langchain_agent(base_url):
    from langchain.agents import create_agent
    from langchain.agents.middleware import dynamic_prompt

    @dynamic_prompt
    def prompt_with_context(request):
        context = "\n\n".join(found)
        return f"You are a helpful assistant. Use the following context in your response:\n\n{context}"

    agent = create_agent(langchain_model(base_url), tools=[], middleware=[prompt_with_context])
    return lambda question: agent.invoke({"messages": [{"role": "user", "content": question}]})["messages"][-1].text


def langchain_rag_prompt(base_url):
    from langchain_core.prompts import ChatPromptTemplate

    prompt = ChatPromptTemplate.from_template(
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer "
        "the question. If you don't know the answer, just say that you don't know. Use three sentences maximum and "
        "keep the answer concise.\nQuestion: {question} \nContext: {context} \nAnswer:"
    )
    chain = prompt | langchain_model(base_url)
    return lambda question: chain.invoke({"question": question, "context": "\n\n".join(found)}).text


def llamaindex_citations(base_url):
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.query_engine import CitationQueryEngine
    from llama_index.core.response_synthesizers import get_response_synthesizer
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.core.query_engine.citation_query_engine import (
        CITATION_QA_TEMPLATE,
        CITATION_REFINE_TEMPLATE,
    )
    from llama_index.llms.openai_like import OpenAILike

    class NextNodes(BaseRetriever):
        def _retrieve(self, query_bundle):
            return [NodeWithScore(node=TextNode(text=text), score=1.0) for text in found]

    llm = OpenAILike(
        model=MODEL, api_base=base_url, api_key="x", is_chat_model=True, context_window=32_000, max_retries=0
    )
    synthesizer = get_response_synthesizer(
        llm=llm, text_qa_template=CITATION_QA_TEMPLATE, refine_template=CITATION_REFINE_TEMPLATE
    )
    engine = CitationQueryEngine(
        retriever=NextNodes(),
        llm=llm,
        response_synthesizer=synthesizer,
        citation_chunk_size=512,
        callback_manager=CallbackManager(),
    )
    return lambda question: str(engine.query(question))


APPLICATIONS = {
    "langchain-agent": langchain_agent,
    "langchain-rag-prompt": langchain_rag_prompt,
    "llamaindex-citations": llamaindex_citations,
}

ask = APPLICATIONS[sys.argv[1]](sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    found[:] = asked["passages"]
    print(json.dumps(ask(asked["question"])), flush=True)
