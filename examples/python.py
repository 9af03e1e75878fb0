# Python, with its standard library only. With the package `openai`, the two fields go into `extra_body`.
import json
import os
import urllib.request

url = os.environ.get("WARMPATH_URL", "http://localhost:8080")
body = {
    "model": "warmpath-tiny",
    "messages": [{"role": "user", "content": "What is the weight of Velka?"}],
    "documents": [  # in retrieval order
        {"id": "velka", "title": "Velka", "content": "The weight of Velka is 42 kg."},
        {"id": "orsin", "title": "Orsin", "content": "The weight of Orsin is 17 kg."},
    ],
}
request = urllib.request.Request(
    f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["choices"][0]["message"]["content"].strip())
    print(response.headers["x-warmpath"])

# Prints:
# 42 kg
# overhead=…, policy=foresight, documents=2, …
