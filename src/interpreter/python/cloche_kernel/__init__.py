"""The Python kernel: keeps the state of one context and runs what it is sent. docs/design/0019-interpreter.md is its contract.

It needs nothing but the standard library, and works with Python 3.9 and later."""
