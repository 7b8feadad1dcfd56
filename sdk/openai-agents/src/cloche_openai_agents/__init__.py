"""Tools for the OpenAI Agents SDK that run in a Cloche sandbox.

    with Cloche() as client, client.sandboxes.create() as sandbox:
        agent = Agent(name="coder", tools=sandbox_tools(sandbox))

`ClocheSandboxClient` is a sandbox client for the SDK's sandbox agents.
"""

from .sandbox import ClocheSandboxClient, ClocheSandboxOptions, ClocheSandboxSession, ClocheSandboxState
from .tools import sandbox_tools

__version__ = "0.1.0"
__all__ = ["ClocheSandboxClient", "ClocheSandboxOptions", "ClocheSandboxSession", "ClocheSandboxState", "sandbox_tools"]
