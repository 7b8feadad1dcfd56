"""What a language model is given to use a sandbox: which tools there are, what they take, and what their answers look like.

`Tools` and `AsyncTools` call them. The definitions are JSON Schema, so that any framework can have them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .errors import InvalidError
from .models import Result

JsonSchema = Dict[str, Any]
MAX_TEXT = 30_000
READ_LINES = 2000


@dataclass(frozen=True)
class ToolDefinition:
    """One tool, as a model sees it."""

    name: str
    description: str
    #: A JSON Schema of its arguments: an object without further properties.
    parameters: JsonSchema


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool answers. `is_error`: the call itself failed; a command that exits with 1 is an answer like others."""

    text: str
    is_error: bool = False

    def __str__(self) -> str:
        return self.text


def _tool(name: str, description: str, required: Mapping[str, JsonSchema], **optional: JsonSchema) -> ToolDefinition:
    return ToolDefinition(
        name,
        description,
        {
            "type": "object",
            "properties": {**required, **optional},
            "required": list(required),
            "additionalProperties": False,
        },
    )


def _text(description: str) -> JsonSchema:
    return {"type": "string", "description": description}


def _number(description: str, minimum: int) -> JsonSchema:
    return {"type": "integer", "description": description, "minimum": minimum}


_PATH = _text("Path of the file in the sandbox; a relative one starts at the work folder.")
_TIMEOUT = _number("Seconds after which the command is ended.", 1)

DEFINITIONS: Tuple[ToolDefinition, ...] = (
    _tool(
        "run_command",
        "Runs a command line with /bin/sh in the sandbox and answers with its output and exit code. Each call is a shell of its "
        "own; files stay.",
        {"command": _text("The command line.")},
        timeout=_TIMEOUT,
    ),
    _tool(
        "run_python",
        "Runs a Python program in the sandbox and answers with what it printed. Each call is a process of its own; files stay.",
        {"code": _text("The program.")},
        timeout=_TIMEOUT,
    ),
    _tool(
        "read_file",
        "Reads a text file of the sandbox. Lines have numbers in front.",
        {"path": _PATH},
        offset=_number("The first line to read, counted from 1.", 1),
        limit=_number(f"How many lines to read, {READ_LINES} by default.", 1),
    ),
    _tool(
        "write_file",
        "Writes a text file of the sandbox as a whole. Folders above it are made.",
        {"path": _PATH, "content": _text("All of its new content.")},
    ),
    _tool(
        "edit_file",
        "Replaces a text in a file of the sandbox. The text must occur exactly once, unless replace_all is true.",
        {"path": _PATH, "old": _text("The text to replace, as it is in the file."), "new": _text("What takes its place.")},
        replace_all={"type": "boolean", "description": "Replace each occurrence."},
    ),
    _tool(
        "list_files",
        "Lists a folder of the sandbox.",
        {"path": _text("Path of the folder; \".\" is the work folder.")},
        depth=_number("How many levels to list, 1 by default.", 1),
    ),
)

_TYPES: Mapping[str, Tuple[type, ...]] = {"string": (str,), "integer": (int,), "boolean": (bool,)}


def chosen(names: Optional[Sequence[str]]) -> List[ToolDefinition]:
    """The tools of these names, in the order of the table."""
    if names is None:
        return list(DEFINITIONS)
    for name in names:
        definition(DEFINITIONS, name)
    return [d for d in DEFINITIONS if d.name in names]


def definition(offered: Sequence[ToolDefinition], name: str) -> ToolDefinition:
    for d in offered:
        if d.name == name:
            return d
    known = ", ".join(d.name for d in offered)
    raise InvalidError(f"no tool {name!r}", code="invalid", remedy=f"one of: {known}")


def checked(offered: Sequence[ToolDefinition], name: str, arguments: Union[str, Mapping[str, Any], None]) -> Dict[str, Any]:
    """The arguments of a call, as a model wrote them (JSON, or what it means); an InvalidError says what is wrong with them."""
    schema = definition(offered, name).parameters
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as e:
            raise InvalidError(f"the arguments of {name} are not JSON", code="invalid", cause=str(e)) from None
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise InvalidError(f"the arguments of {name} must be an object, got {type(arguments).__name__}", code="invalid")
    found: Dict[str, Any] = {}
    for key, value in arguments.items():
        wanted = schema["properties"].get(key)
        if wanted is None:
            known = ", ".join(schema["properties"])
            raise InvalidError(f"{name} has no argument {key!r}", code="invalid", remedy=f"one of: {known}")
        if value is None and key not in schema["required"]:
            continue  # models say null for what they leave out
        fits = isinstance(value, _TYPES[wanted["type"]]) and isinstance(value, bool) == (wanted["type"] == "boolean")
        if not fits or value < wanted.get("minimum", value):
            expected = wanted["type"] + (f" of at least {wanted['minimum']}" if "minimum" in wanted else "")
            raise InvalidError(f"{name}: {key} must be {expected}, got {value!r}", code="invalid")
        found[key] = value
    for key in schema["required"]:
        if key not in found:
            raise InvalidError(f"{name} needs {key!r}", code="invalid")
    return found


def shortened(text: str, limit: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[{len(text) - limit} characters are left out here]\n{tail}"


def answer_of(result: Result, limit: int) -> ToolAnswer:
    """What a model reads about a command that ended."""
    parts = [shortened(result.stdout, limit)]
    if result.stderr:
        parts.append(("[stderr]\n" if result.stdout else "") + shortened(result.stderr, limit))
    dropped = result.truncated.stdout_dropped + result.truncated.stderr_dropped
    if dropped:
        parts.append(f"[{dropped} bytes of output are left out]")
    if result.verdict.cause != "exited":
        parts.append(f"[{result.verdict.cause}: {result.verdict.detail or 'the command was ended'}]")
    elif result.exit_code != 0:
        parts.append(f"[exit code {result.exit_code}]")
    return ToolAnswer("\n".join(p.rstrip("\n") for p in parts if p) or "[no output]")


def page(data: bytes, path: str, offset: int, limit: int, room: int) -> ToolAnswer:
    """Some lines of a file, with their numbers."""
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        return ToolAnswer(f"error: {path} is not text: byte {e.start} is not UTF-8", True)
    if not text:
        return ToolAnswer("[the file is empty]")
    lines = (text[:-1] if text.endswith("\n") else text).split("\n")
    if offset > len(lines):
        return ToolAnswer(f"error: {path} has {len(lines)} lines, offset is {offset}", True)
    last = min(len(lines), offset - 1 + limit)
    shown = "\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines[offset - 1 : last], offset))
    rest = f"\n[lines {last + 1} to {len(lines)} follow]" if last < len(lines) else ""
    return ToolAnswer(shortened(shown, room) + rest)


def edited(text: str, path: str, old: str, new: str, replace_all: bool) -> Tuple[Optional[str], ToolAnswer]:
    """The new text of a file, or None and why not."""
    count = text.count(old) if old else 0
    if count == 0:
        return None, ToolAnswer(f"error: {path} does not contain the text" if old else "error: old must not be empty", True)
    if count > 1 and not replace_all:
        return None, ToolAnswer(
            f"error: {path} contains the text {count} times; include more of the lines around it, or set replace_all", True
        )
    return text.replace(old, new), ToolAnswer(f"{path}: {count} replaced")
