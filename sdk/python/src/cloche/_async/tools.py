"""Calls the tools that a language model is given."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from ..errors import ConflictError, ClocheError, InvalidError, NotFoundError, RefusedError, TooLargeError
from ..options import Duration
from ..tools import MAX_TEXT, READ_LINES, ToolAnswer, ToolDefinition, answer_of, checked, chosen, edited, page, shortened
from .sandbox import AsyncSandbox

#: What a model can do something about. Other errors (no connection, the sandbox ended) are raised.
FOR_THE_MODEL = (InvalidError, NotFoundError, ConflictError, TooLargeError, RefusedError)
MAX_FILE = 16 * 1024 * 1024
KINDS = {"dir": "/", "link": "@", "other": "?"}


class AsyncTools:
    """The tools of one sandbox: definitions for a model's request, and calls by name for its answer.

    `only` names those that are offered; `timeout` ends commands of calls that set none; answers have about `max_text`
    characters.
    """

    def __init__(
        self, sandbox: AsyncSandbox, *, only: Optional[Sequence[str]] = None, timeout: Duration = 60, max_text: int = MAX_TEXT
    ) -> None:
        self.sandbox = sandbox
        self.definitions: List[ToolDefinition] = chosen(only)
        self.timeout, self.max_text = timeout, max_text

    def anthropic(self) -> List[Dict[str, Any]]:
        """For `tools` of Anthropic's Messages API."""
        return [{"name": d.name, "description": d.description, "input_schema": d.parameters} for d in self.definitions]

    def openai(self) -> List[Dict[str, Any]]:
        """For `tools` of OpenAI's Responses API."""
        return [
            {"type": "function", "name": d.name, "description": d.description, "parameters": d.parameters, "strict": False}
            for d in self.definitions
        ]

    def openai_chat(self) -> List[Dict[str, Any]]:
        """For `tools` of OpenAI's Chat Completions API, and of servers that are compatible with it."""
        return [
            {"type": "function", "function": {"name": d.name, "description": d.description, "parameters": d.parameters}}
            for d in self.definitions
        ]

    async def call(self, name: str, arguments: Union[str, Mapping[str, Any], None] = None) -> ToolAnswer:
        """Calls one of them. Mistakes of a model are answers that say so; failures of the connection are exceptions."""
        try:
            return await self._run(name, checked(self.definitions, name, arguments))
        except FOR_THE_MODEL as e:
            if isinstance(e, NotFoundError):
                await self.sandbox.refresh()  # a sandbox that is gone is no mistake of the model: this raises
            return ToolAnswer(f"error: {_said(e)}", True)

    async def _run(self, name: str, a: Dict[str, Any]) -> ToolAnswer:
        files = self.sandbox.files
        if name == "run_command":
            result = await self.sandbox.exec(a["command"], timeout=a.get("timeout", self.timeout))
            return answer_of(result, self.max_text)
        if name == "run_python":
            result = await self.sandbox.exec(["python3", "-"], stdin=a["code"], timeout=a.get("timeout", self.timeout))
            return answer_of(result, self.max_text)
        if name == "read_file":
            data = await self._file(a["path"])
            return page(data, a["path"], a.get("offset", 1), a.get("limit", READ_LINES), self.max_text)
        if name == "write_file":
            done = await files.write(a["path"], a["content"])
            return ToolAnswer(f"{done.path}: {done.size} bytes")
        if name == "edit_file":
            text = (await self._file(a["path"])).decode("utf-8", "surrogateescape")
            new, answer = edited(text, a["path"], a["old"], a["new"], a.get("replace_all", False))
            if new is not None:
                await files.write(a["path"], new.encode("utf-8", "surrogateescape"))
            return answer
        found = await files.list(a["path"], depth=a.get("depth"))
        names = [f"{f.path}{KINDS.get(f.type, '')} {f.size if f.type == 'file' else ''}".rstrip() for f in sorted(found, key=lambda f: f.path)]
        if found.truncated:
            names.append("[there is more]")
        return ToolAnswer(shortened("\n".join(names), self.max_text) or "[the folder is empty]")

    async def _file(self, path: str) -> bytes:
        try:
            data = await self.sandbox.files.read(path, length=MAX_FILE + 1)
        except InvalidError as e:
            if e.status != 416:
                raise
            return b""  # an empty file has no first byte
        if len(data) > MAX_FILE:
            raise TooLargeError(f"{path} has more than {MAX_FILE} bytes", code="too_large", remedy="read it by a command")
        return data


def _said(e: ClocheError) -> str:
    return e.message + (f": {e.cause}" if e.cause and e.cause not in e.message else "") + (f"; {e.remedy}" if e.remedy else "")
