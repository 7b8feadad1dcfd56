#!/usr/bin/env python3
"""A model of OpenAI's Responses API works in a sandbox until it has the answer.

    pip install ./sdk/python openai
    OPENAI_API_KEY=… examples/openai_agent.py "How many primes are below one million?"
"""
import os
import sys

import openai
from cloche import Cloche, Tools

MODEL = os.environ.get("MODEL", "gpt-5")


def ask(question, tools, max_turns=30):
    model = openai.OpenAI()
    items = [{"role": "user", "content": question}]
    for _ in range(max_turns):
        response = model.responses.create(model=MODEL, tools=tools.openai(), input=items)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            print(f"[{call.name}] {call.arguments}", file=sys.stderr)
            done = tools.call(call.name, call.arguments)  # the arguments are JSON, as the model wrote it
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": done.text})
    raise SystemExit(f"no answer after {max_turns} turns")


if len(sys.argv) != 2:
    sys.exit(__doc__)
with Cloche() as client, client.sandboxes.create(timeout="1h") as sandbox:
    print(ask(sys.argv[1], Tools(sandbox)))
