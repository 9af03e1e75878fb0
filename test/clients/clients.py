"""Calls of the Python packages openai and anthropic. Prints a line of JSON for each: name, and what is wrong or null.

python clients.py BASE_URL
"""

import json
import sys

import anthropic
import openai

URL = sys.argv[1]
MODEL = "local-model"
TEXT = "The answer is 42."
QUESTION = [{"role": "user", "content": "What is the answer?"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
FUNCTION = {"name": "lookup", "description": "Looks up.", "parameters": SCHEMA}
INPUTS = [{"x": 1}, {"x": 2}]

gpt = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
claude = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


def same(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def chat_answer():
    answer = gpt.chat.completions.create(model=MODEL, messages=QUESTION)
    same(answer.choices[0].message.content, TEXT)
    same(answer.usage.prompt_tokens, 100)


def chat_stream():
    options = {"include_usage": True}
    chunks = list(gpt.chat.completions.create(model=MODEL, messages=QUESTION, stream=True, stream_options=options))
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), TEXT)
    same(chunks[-1].usage.completion_tokens, 8)


def responses_answer():
    answer = gpt.responses.create(model=MODEL, input="What is the answer?", instructions="Be brief.")
    same((answer.status, answer.output_text), ("completed", TEXT))
    same(answer.usage.input_tokens_details.cached_tokens, 64)


def responses_stream():
    with gpt.responses.stream(model=MODEL, input=QUESTION) as stream:
        answer = stream.get_final_response()
    same((answer.status, answer.output_text), ("completed", TEXT))


def responses_tools():
    tools = [{"type": "function", **FUNCTION}]
    answer = gpt.responses.create(model=MODEL, input=QUESTION, tools=tools)
    calls = [item for item in answer.output if item.type == "function_call"]
    same([json.loads(call.arguments) for call in calls], INPUTS)
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "42"} for call in calls]
    history = QUESTION + [item.model_dump(exclude_none=True) for item in answer.output] + results
    same(gpt.responses.create(model=MODEL, input=history, tools=tools).output_text, TEXT)


def responses_tools_stream():
    with gpt.responses.stream(model=MODEL, input=QUESTION, tools=[{"type": "function", **FUNCTION}]) as stream:
        answer = stream.get_final_response()
    same([json.loads(item.arguments) for item in answer.output if item.type == "function_call"], INPUTS)


def messages_answer():
    answer = claude.messages.create(model=MODEL, max_tokens=64, messages=QUESTION, system="Be brief.")
    same((answer.stop_reason, answer.content[0].text), ("end_turn", TEXT))
    same((answer.usage.input_tokens, answer.usage.cache_read_input_tokens), (36, 64))


def messages_stream():
    with claude.messages.stream(model=MODEL, max_tokens=64, messages=QUESTION) as stream:
        same("".join(stream.text_stream), TEXT)
        same(stream.get_final_message().stop_reason, "end_turn")


def messages_tools():
    tools = [{"name": "lookup", "description": "Looks up.", "input_schema": SCHEMA}]
    answer = claude.messages.create(model=MODEL, max_tokens=64, messages=QUESTION, tools=tools)
    calls = [block for block in answer.content if block.type == "tool_use"]
    same((answer.stop_reason, [call.input for call in calls]), ("tool_use", INPUTS))
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "42"} for call in calls]
    history = QUESTION + [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    again = claude.messages.create(model=MODEL, max_tokens=64, messages=history, tools=tools)
    same(again.content[0].text, TEXT)


def messages_tools_stream():
    tools = [{"name": "lookup", "description": "Looks up.", "input_schema": SCHEMA}]
    with claude.messages.stream(model=MODEL, max_tokens=64, messages=QUESTION, tools=tools) as stream:
        answer = stream.get_final_message()
    same([block.input for block in answer.content if block.type == "tool_use"], INPUTS)


def chat_refused():
    try:
        gpt.chat.completions.create(model="busy", messages=QUESTION)
    except openai.RateLimitError as error:
        return same("Too many requests." in str(error), True)
    raise AssertionError("no error")


def messages_refused():
    try:
        claude.messages.create(model="busy", max_tokens=64, messages=QUESTION)
    except anthropic.RateLimitError as error:
        return same("Too many requests." in str(error), True)
    raise AssertionError("no error")


CALLS = [
    chat_answer,
    chat_stream,
    chat_refused,
    responses_answer,
    responses_stream,
    responses_tools,
    responses_tools_stream,
    messages_answer,
    messages_stream,
    messages_tools,
    messages_tools_stream,
    messages_refused,
]

for call in CALLS:
    problem = None
    try:
        call()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    print(json.dumps([call.__name__.replace("_", " "), problem]), flush=True)
