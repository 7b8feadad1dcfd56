"""The SDK's tools as function tools of an agent."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, List, Optional, Sequence, Union

from agents import FunctionTool, Tool
from agents.tool_context import ToolContext
from cloche import AsyncSandbox, AsyncTools, Sandbox, Tools
from cloche.options import Duration


def sandbox_tools(
    sandbox: Union[Sandbox, AsyncSandbox], *, only: Optional[Sequence[str]] = None, timeout: Duration = 60, max_text: int = 30_000
) -> List[Tool]:
    """run_command, run_python, read_file, write_file, edit_file, list_files; options are those of `cloche.Tools`.

    A mistake of the model is an answer for it. A lost sandbox or connection is an exception that ends the run.
    """
    tools: Union[Tools, AsyncTools]
    if isinstance(sandbox, AsyncSandbox):
        tools = AsyncTools(sandbox, only=only, timeout=timeout, max_text=max_text)
    else:
        tools = Tools(sandbox, only=only, timeout=timeout, max_text=max_text)
    return [
        FunctionTool(
            name=d.name,
            description=d.description,
            params_json_schema=d.parameters,
            on_invoke_tool=_invoked(tools, d.name),
            strict_json_schema=False,  # strict schemas have no optional arguments
        )
        for d in tools.definitions
    ]


def _invoked(tools: Union[Tools, AsyncTools], name: str) -> Callable[[ToolContext[Any], str], Coroutine[Any, Any, str]]:
    async def invoke(_: ToolContext[Any], arguments: str) -> str:
        if isinstance(tools, AsyncTools):
            return (await tools.call(name, arguments)).text
        return (await asyncio.to_thread(tools.call, name, arguments)).text

    return invoke
