#!/usr/bin/env python3
"""Makes src/cloche/_sync from src/cloche/_async: the same client without `async` and `await`.

    scripts/unasync.py          writes the files
    scripts/unasync.py --check  exits 1 if they differ

runtime.py is written by hand in both forms: it holds what really differs. The rest is a matter of words, in examples of
docstrings as well as in code.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(HERE, "src", "cloche")
BY_HAND = ("runtime.py",)
NOTE = "# Made from ../_async/{name} by scripts/unasync.py: change that one.\n"

WORDS = {
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aread": "read",
    "aiter_raw": "iter_raw",
    "handle_async_request": "handle_request",
    "StopAsyncIteration": "StopIteration",
    "_async": "_sync",
}
RULES = (
    (re.compile(r"\basync (?=def|with|for)"), ""),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\b(" + "|".join(WORDS) + r")\b"), lambda m: WORDS[m.group(1)]),
)


def convert(text):
    for pattern, by in RULES:
        text = pattern.sub(by, text)
    return text


def read(path):
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as f:
        return f.read()


def main():
    check = "--check" in sys.argv[1:]
    source, target = os.path.join(PACKAGE, "_async"), os.path.join(PACKAGE, "_sync")
    names = [f for f in sorted(os.listdir(source)) if f.endswith(".py") and f not in BY_HAND]
    bad = []
    for name in names:
        made = NOTE.format(name=name) + convert(read(os.path.join(source, name)))
        if read(os.path.join(target, name)) != made:
            bad.append(name)
            if not check:
                with open(os.path.join(target, name), "w", encoding="utf-8") as f:
                    f.write(made)
    for name in sorted(f for f in os.listdir(target) if f.endswith(".py") and f not in (*names, *BY_HAND)):
        bad.append(name)
        if not check:
            os.unlink(os.path.join(target, name))
    if check and bad:
        sys.exit(f"_sync differs from what scripts/unasync.py makes: {', '.join(bad)}")


if __name__ == "__main__":
    main()
