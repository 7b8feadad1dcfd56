"""LangChain tools that run in a Cloche sandbox.

    with Cloche() as client, client.sandboxes.create() as sandbox:
        model.bind_tools(ClocheToolkit(sandbox=sandbox).get_tools())

`cloche_langchain.deepagents` has a backend for deep agents.
"""

from .toolkit import ClocheToolkit

__version__ = "0.1.0"
__all__ = ["ClocheToolkit"]
