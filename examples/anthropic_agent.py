#!/usr/bin/env python3
"""A model of Anthropic's Messages API works in a sandbox until it has the answer.

    pip install ./sdk/python anthropic
    ANTHROPIC_API_KEY=… examples/anthropic_agent.py "How many primes are below one million?"
"""
import os
import sys

import anthropic
from cloche import Cloche, Tools

MODEL = os.environ.get("MODEL", "claude-sonnet-4-5")


def ask(question, tools, max_turns=30):
    model = anthropic.Anthropic()
    messages = [{"role": "user", "content": question}]
    for _ in range(max_turns):
        answer = model.messages.create(model=MODEL, max_tokens=4096, tools=tools.anthropic(), messages=messages)
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in answer.content if block.type == "text")
        results = []
        for call in calls:
            print(f"[{call.name}] {call.input}", file=sys.stderr)
            done = tools.call(call.name, call.input)
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": done.text, "is_error": done.is_error})
        messages.append({"role": "user", "content": results})
    raise SystemExit(f"no answer after {max_turns} turns")


if len(sys.argv) != 2:
    sys.exit(__doc__)
with Cloche() as client, client.sandboxes.create(timeout="1h") as sandbox:
    print(ask(sys.argv[1], Tools(sandbox)))
