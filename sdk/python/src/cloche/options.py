"""What calls take: the shapes of their arguments. Names are those of the API, sizes and durations as well.

A size is bytes or a text such as "512M"; a duration is seconds (also fractions) or a text such as "30s".
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, TypedDict, Union

Size = Union[int, str]
Duration = Union[float, str]
Isolation = Literal["process", "container", "vm", "wasm"]
SandboxState = Literal["running", "paused", "hibernated", "stopped", "lost"]
Scope = Literal["read", "exec", "sandbox", "admin"]
StreamName = Literal["stdout", "stderr", "tty"]
SignalScope = Literal["process", "group", "tree"]
#: Running processes as well; `auto`: the files only if the processes cannot be carried.
Memory = Union[bool, Literal["auto"]]
#: Connections to the outside are reset in the copy, or are a reason to refuse.
CopiedNetwork = Literal["drop", "refuse"]
#: A path in a sandbox. Relative paths start at its work folder; bytes must be UTF-8.
RemotePath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
LocalPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Code(TypedDict):
    """Code for the warm Python of the sandbox's template."""

    code: str


#: A line for `/bin/sh -c`, a program with its arguments, or code for the warm Python.
Command = Union[str, Sequence[str], Code]
Data = Union[str, bytes, bytearray, memoryview]
#: A whole body, a file that is open for reading in binary, or pieces of bytes.
Source = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes]]
#: Of a build: a folder of this machine, or a tar.
BuildContext = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, BinaryIO, Iterable[bytes]]
ImageFormat = Literal["auto", "image", "rootfs"]

#: Of a context; others that the server has are fine as well.
Language = Union[Literal["python", "javascript", "typescript", "shell", "js", "ts", "bash", "sh", "r"], str]


class Restrict(TypedDict, total=False):
    """What code in a Python context cannot use by name: a guard-rail, since the sandbox is the wall."""

    builtins: Sequence[str]
    imports: Sequence[str]


class RunLimits(TypedDict, total=False):
    """Of the sandbox in which code is run."""

    cpus: Optional[float]
    memory: Optional[Size]
    disk: Optional[Size]
    pids: Optional[int]
    nofile: Optional[int]
    inodes: Optional[int]
    io_bps: Optional[Size]


class RunOptions(TypedDict, total=False):
    """Of code that is run in a sandbox of its own."""

    language: Language
    #: Written before it begins: by path, relative to the working folder.
    files: Optional[Mapping[str, Union[str, bytes]]]
    #: Installed before it begins, by pip or npm.
    packages: Optional[Sequence[str]]
    image: Optional[str]
    isolation: Optional[Isolation]
    template: Optional[str]
    limits: Optional[RunLimits]
    network: Optional[Network]
    secrets: Optional[SecretUses]
    #: Files that it makes: all but hidden ones, or those that match a pattern.
    artifacts: Union[bool, Sequence[str], None]
    #: After it the code is interrupted.
    timeout: Optional[Duration]
    env: Optional[Mapping[str, Optional[str]]]


class Terminal(TypedDict, total=False):
    rows: int
    cols: int


class Idle(TypedDict, total=False):
    """What happens after so long without a call."""

    pause: Optional[Duration]
    hibernate: Optional[Duration]
    delete: Optional[Duration]


class NetworkBudget(TypedDict, total=False):
    """What may be used in all; 0 or nothing: no bound."""

    bytes_out: Optional[Size]
    bytes_in: Optional[Size]
    connections: Optional[int]
    concurrent: Optional[int]
    bandwidth: Optional[Size]
    dns: Optional[int]
    requests_per_minute: Optional[int]


class NetworkPolicy(TypedDict, total=False):
    """What a sandbox may reach. A rule: `name`, `*.name`, `address/n` or `@set`, with `:ports`, else 80 and 443."""

    mode: Optional[Literal["none", "allow", "open", "observe"]]
    allow: Optional[List[str]]
    budget: Optional[NetworkBudget]
    tree_budget: Optional[NetworkBudget]


Network = Union[Literal["none", "open", "observe"], NetworkPolicy]


#: How a sandbox gets a secret. Those with `to` are added to its requests to that host alone: the sandbox never sees them.
SecretUse = TypedDict(
    "SecretUse",
    {
        "name": str,
        "as": Literal["file", "env", "header", "basic", "query", "mask"],
        "path": str,  # file: also a link to /run/secrets/NAME from here
        "env": str,  # env: the variable, by default the secret's name
        "to": str,  # header, basic, query
        "header": str,
        "format": str,  # with one {}
        "user": str,  # basic
        "parameter": str,  # query
        "plain": bool,
    },
    total=False,
)
#: `drop`: none, although the template or checkpoint has some.
SecretUses = Union[Sequence[SecretUse], Literal["drop"]]


class Tmpfs(TypedDict):
    path: str
    size: Size


class _Mount(TypedDict):
    source: str
    target: str


class Mount(_Mount, total=False):
    read_only: bool


class Differing(TypedDict, total=False):
    """What of a create may differ from what a checkpoint has. None removes a setting of the template."""

    image: Optional[str]
    isolation: Optional[Isolation]
    cpus: Optional[float]
    memory: Optional[Size]
    disk: Optional[Size]
    pids: Optional[int]
    nofile: Optional[int]
    inodes: Optional[int]
    io_bps: Optional[Size]
    output_limit: Optional[Size]
    timeout: Optional[Duration]
    idle: Optional[Union[Duration, Idle]]
    exec_timeout: Optional[Duration]
    network: Optional[Network]
    env: Optional[Mapping[str, str]]
    secrets: Optional[SecretUses]
    metadata: Optional[Mapping[str, str]]
    user: Optional[str]
    workdir: Optional[str]
    read_only: Optional[bool]
    storage: Optional[Literal["memory", "disk"]]
    tmpfs: Optional[Sequence[Tmpfs]]
    mounts: Optional[Sequence[Mount]]
    #: Names of the Container Device Interface, or nodes as /dev/fuse, that the daemon's configuration allows.
    devices: Optional[Sequence[str]]
    #: "all", "any", "any:2", or numbers or UUIDs with commas between them.
    gpus: Optional[str]
    #: Others that say the same may have the same GPUs.
    gpus_shared: Optional[bool]
    hostname: Optional[str]


class CreateOptions(Differing, total=False):
    name: Optional[str]
    key: Optional[str]
    template: Optional[str]
    checkpoint: Optional[str]


class StartCommand(TypedDict, total=False):
    cmd: Sequence[str]
    shell: str
    cwd: str
    env: Mapping[str, str]
    user: str
    timeout: Duration


class Warm(TypedDict, total=False):
    """What makes a template's processes warm: `python`, or `cmd` and the text that it writes when it is `ready`."""

    python: str
    #: A context of the code interpreter.
    context: Literal["python"]
    cmd: Sequence[str]
    ready: str
    timeout: Duration


class TemplateOptions(Differing, total=False):
    checkpoint: Optional[str]
    start: Optional[StartCommand]
    warm: Optional[Warm]
    description: Optional[str]


class ExecOptions(TypedDict, total=False):
    """Of every command. `timeout` is wall time, after which the whole process tree is killed."""

    cwd: Optional[str]
    env: Optional[Mapping[str, str]]
    user: Optional[str]
    timeout: Optional[Duration]
    cpu_time: Optional[Duration]
    #: "merged": stderr goes where stdout goes, in the order in which the command writes.
    output: Optional[Literal["separate", "merged"]]
    output_limit: Optional[Size]
    nofile: Optional[int]


class Rate(TypedDict, total=False):
    points: int
    window: Duration
    block: Duration


class Quotas(TypedDict, total=False):
    sandboxes: int
    cpus: float
    memory: Size
    disk: Size
    execs: int
    checkpoints: int
    checkpoint_bytes: Size
    secrets: int
    image_bytes: Size
    gpus: int


class NamedCheckpoint(TypedDict):
    """The name of one of a sandbox's checkpoints."""

    sandbox: str
    name: str


class CheckpointSource(TypedDict):
    checkpoint: str


class SandboxSource(TypedDict):
    sandbox: str


#: A state to compare with.
DiffSource = Union[Literal["image"], CheckpointSource, SandboxSource]


def diff_source(source: Optional[DiffSource]) -> Optional[str]:
    """What `from` is in a query."""
    if source is None or isinstance(source, str):
        return source
    kind, value = next(iter(source.items()))
    return f"{kind}:{value}"


def exec_body(
    cmd: Command,
    options: Mapping[str, Any],
    *,
    stdin: Union[bool, Data, None] = None,
    tty: Union[bool, Terminal, None] = None,
    more: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """The body of a request that starts an exec."""
    from ._wire import base64_text
    from .errors import invalid

    body: Dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    if isinstance(cmd, str):
        body["shell"] = cmd
    elif isinstance(cmd, Mapping):
        body["code"] = cmd["code"]
    elif isinstance(cmd, (bytes, bytearray)):  # pyright: ignore[reportUnnecessaryIsInstance]
        invalid("a command must be str, not bytes", "the API takes text in UTF-8: pass other bytes by stdin or in a file")
    elif not isinstance(cmd, Iterable):
        invalid(f"a command must be str or a list of str, not {type(cmd).__name__}")
    else:
        body["cmd"] = [os.fspath(x) if isinstance(x, os.PathLike) else x for x in cmd]
    if tty:
        body["tty"] = tty
    if isinstance(stdin, str):
        body["stdin"] = stdin
    elif isinstance(stdin, (bytes, bytearray, memoryview)):
        body["stdin_base64"] = base64_text(stdin)
    elif stdin is True and not tty:
        body["stdin_open"] = True
    body.update(more or {})
    return body
