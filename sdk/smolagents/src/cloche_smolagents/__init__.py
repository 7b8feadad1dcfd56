"""A smolagents executor that runs code in a Cloche sandbox.

    with ClocheExecutor(memory="1G") as executor:
        CodeAgent(tools=[], model=model, executor=executor).run("…")
"""

from .executor import ClocheExecutor

__version__ = "0.1.0"
__all__ = ["ClocheExecutor"]
