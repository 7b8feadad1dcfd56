"""Cloche sandboxes for Inspect AI.

    Task(dataset=…, solver=…, sandbox="cloche")
    Task(dataset=…, solver=…, sandbox=SandboxEnvironmentSpec("cloche", ClocheConfig(memory="1G")))

The daemon is that of CLOCHE_URL and CLOCHE_TOKEN.
"""

from .config import ClocheConfig
from .environment import ClocheSandboxEnvironment

__version__ = "0.1.0"
__all__ = ["ClocheConfig", "ClocheSandboxEnvironment"]
