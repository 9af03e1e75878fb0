"""What ContextPilot makes of requests, in its documented modes.

Reads {"system", "requests": [{"question", "documents": [{"title", "content"}]}]} from stdin and writes {"unmoved",
"online", "offline"} to stdout, each a list of {"messages"}; `offline` in the order in which to send them.
"""

import contextlib
import io
import json
import sys

given = json.load(sys.stdin)
system, requests = given["system"], given["requests"]
with contextlib.redirect_stdout(io.StringIO()):
    import contextpilot.api

    questions = [request["question"] for request in requests]
    texts = [
        ["\n".join(filter(None, [document.get("title"), document["content"]])) for document in request["documents"]]
        for request in requests
    ]
    pilot = contextpilot.ContextPilot(use_gpu=False)
    unmoved = [
        [
            {"role": "system", "content": contextpilot.api._build_system_prompt(documents, documents, system)},
            {"role": "user", "content": question},
        ]
        for documents, question in zip(texts, questions)
    ]
    online = [
        pilot.optimize(documents, question, system_instruction=system)
        for documents, question in zip(texts, questions)
    ]
    offline, _order = contextpilot.optimize_batch(texts, questions, system_instruction=system)

prompts = {"unmoved": unmoved, "online": online, "offline": offline}
json.dump({name: [{"messages": messages} for messages in made] for name, made in prompts.items()}, sys.stdout)
