"""The SDK's tools as LangChain's."""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Coroutine, List, Optional, Sequence, Union

from cloche import AsyncSandbox, AsyncTools, Sandbox, ToolAnswer, ToolDefinition, Tools
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
from pydantic import ConfigDict


def _text(answer: ToolAnswer) -> str:
    if answer.is_error:
        raise ToolException(answer.text)  # becomes a tool message with status="error"
    return answer.text


class ClocheToolkit(BaseToolkit):
    """Tools of one sandbox: run_command, run_python, read_file, write_file, edit_file, list_files.

    With a `Sandbox` they can be called from threads and from asyncio; with an `AsyncSandbox` from asyncio only. `only`,
    `timeout` and `max_text` are those of `cloche.Tools`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sandbox: Union[Sandbox, AsyncSandbox]
    only: Optional[Sequence[str]] = None
    timeout: Union[float, str] = 60
    max_text: int = 30_000

    def get_tools(self) -> List[BaseTool]:
        if isinstance(self.sandbox, AsyncSandbox):
            later = AsyncTools(self.sandbox, only=self.only, timeout=self.timeout, max_text=self.max_text)
            return [_tool(d, None, _awaited(later, d.name)) for d in later.definitions]
        tools = Tools(self.sandbox, only=self.only, timeout=self.timeout, max_text=self.max_text)
        return [_tool(d, _called(tools, d.name), _in_thread(tools, d.name)) for d in tools.definitions]


def _tool(d: ToolDefinition, func: Optional[Callable[..., str]], coroutine: Callable[..., Coroutine[Any, Any, str]]) -> BaseTool:
    return StructuredTool(
        name=d.name, description=d.description, args_schema=d.parameters, func=func, coroutine=coroutine, handle_tool_error=True
    )


def _called(tools: Tools, name: str) -> Callable[..., str]:
    def call(**arguments: Any) -> str:
        return _text(tools.call(name, arguments))

    return call


def _in_thread(tools: Tools, name: str) -> Callable[..., Coroutine[Any, Any, str]]:
    async def call(**arguments: Any) -> str:
        return _text(await asyncio.to_thread(tools.call, name, arguments))

    return call


def _awaited(tools: AsyncTools, name: str) -> Callable[..., Coroutine[Any, Any, str]]:
    async def call(**arguments: Any) -> str:
        return _text(await tools.call(name, arguments))

    return call
