"""What answers hold. A field that this version does not know is in `extra`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional, Union

from ._display import Bundle, diff_bundle, result_bundle
from ._wire import Model, base64_bytes, renamed
from .options import StreamName


@dataclass(eq=False)
class Verdict(Model):
    """Why an exec ended."""

    #: exited, signaled, timeout, cpu, oom, pids, disk, output, seccomp, killed or lost.
    cause: str
    detail: Optional[str]
    limit: Optional[int]
    peak: Optional[int]
    #: If the cause is `oom`: what exceeded its limit.
    oom_kind: Optional[str] = None
    #: How many processes the memory limit killed while it ran, whatever the cause.
    oom_kills: Optional[int] = None
    warning: Optional[str] = None


@dataclass(eq=False)
class Usage(Model):
    wall_ms: float
    cpu_ms: float
    memory_peak: int
    io_bytes: int
    net_bytes: int
    disk_used: int = 0


@dataclass(eq=False)
class Truncation(Model):
    stdout: bool = False
    stderr: bool = False
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    full_url: Optional[str] = None


@dataclass(eq=False)
class Result(Model):
    """How an exec ended."""

    id: str
    sandbox: str
    #: 128+N for signal N, 124 for a timeout, 137 for a limit.
    exit_code: int
    signal: Optional[int]
    verdict: Verdict
    usage: Usage
    truncated: Truncation
    user: str
    background: bool
    tty: bool
    started_at: datetime
    ended_at: Optional[datetime]
    state: str = "ended"
    #: Only of an exec that was looked up later; its first KiB.
    cmd: List[str] = field(default_factory=list)
    #: How long the command was, if `cmd` has only its beginning.
    cmd_bytes: Optional[int] = None
    stdout: str = ""
    stderr: str = ""
    #: With `binary=True`, and of output that was followed: the same as bytes.
    stdout_bytes: Optional[bytes] = None
    stderr_bytes: Optional[bytes] = None

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.exit_code == 0 and self.verdict.cause == "exited"

    def _take(self, wire: Any) -> None:
        super()._take(wire)
        for name in ("stdout", "stderr"):
            coded = self.extra.pop(name + "_base64", None)
            if coded is not None:
                data = base64_bytes(coded)
                setattr(self, name + "_bytes", data)
                setattr(self, name, data.decode("utf-8", "replace"))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return result_bundle(self)


@dataclass(eq=False)
class ExecInfo(Model):
    """An exec in a list."""

    id: str
    state: str
    #: Its first KiB, if `cmd_bytes` is there.
    cmd: List[str]
    user: str
    background: bool
    tty: bool
    started_at: datetime
    ended_at: Optional[datetime]
    exit_code: Optional[int]
    sandbox: Optional[str] = None
    cmd_bytes: Optional[int] = None
    #: While it runs: when its timeout ends it.
    ends_at: Optional[datetime] = None


@dataclass
class Gap:
    """Output that was not kept: `lost` bytes before the byte at `offset`."""

    offset: int
    lost: int


@dataclass
class OutputChunk:
    """A piece of output, in the order in which it came."""

    stream: StreamName
    data: bytes
    #: The same as text; a character that two pieces share is in the second.
    text: str
    #: Only in a piece without data.
    gap: Optional[Gap] = None


@dataclass
class Output:
    """Output from the spool, and what is missing in it."""

    data: bytes
    gaps: List[Gap]

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(eq=False)
class CutConnection(Model):
    pid: int
    command: str
    fd: Optional[int]
    protocol: str
    local: str
    remote: str
    host: Optional[str]
    unread: int


@dataclass(eq=False)
class Cut(Model):
    """Connections to the outside that processes lost when they were copied; the first 32."""

    count: int
    connections: List[CutConnection] = field(default_factory=list)


@dataclass(eq=False)
class NotDone(Model):
    what: str
    why: str


@dataclass(eq=False)
class Restored(Model):
    """What was done for a sandbox made from a checkpoint before anything in it ran, and what could not be."""

    checkpoint: Optional[str]
    memory: bool
    #: Execs that continue.
    execs: List[str] = field(default_factory=list)
    done: List[str] = field(default_factory=list)
    not_done: List[NotDone] = field(default_factory=list)


@dataclass(eq=False)
class SandboxInfo(Model):
    """A sandbox as the server described it last."""

    id: str
    name: str
    key: Optional[str]
    tenant: str
    state: str
    isolation: str
    image: str
    cpus: float
    memory: int
    disk: int
    inodes: int
    io_bps: int
    pids: int
    nofile: int
    output_limit: int
    #: Seconds until it is deleted; 0 = never.
    timeout: float
    idle: Union[float, Dict[str, float]]
    exec_timeout: float
    network: Dict[str, Any]
    env: Dict[str, str]
    secrets: List[Dict[str, Any]]
    metadata: Dict[str, str]
    user: str
    workdir: str
    read_only: bool
    storage: str
    tmpfs: List[Dict[str, Any]]
    mounts: List[Dict[str, Any]]
    devices: List[str]
    gpus: Optional[str]
    gpus_shared: bool
    hostname: str
    template: Optional[str]
    pooled: bool
    created_at: datetime
    expires_at: Optional[datetime]
    last_used_at: Optional[datetime]
    #: The receipt: what the host enforces, by kind.
    enforced: Dict[str, Any]
    #: The checkpoint that it was made from.
    from_checkpoint: Optional[str] = renamed("checkpoint")
    #: In the answer that restored it.
    restored: Optional[Restored] = None
    #: In the answer that hibernated it: why its processes had to end.
    memory_refused: Optional[str] = None
    #: In the answer that restored, forked, hibernated or woke it.
    cut: Optional[Cut] = None


@dataclass(eq=False)
class NetworkCounts(Model):
    bytes_out: int = 0
    bytes_in: int = 0
    connections: int = 0
    concurrent: int = 0
    refused: int = 0
    dns: int = 0
    dns_refused: int = 0


@dataclass(eq=False)
class Stats(Model):
    cpu_ms: int
    memory: int
    memory_peak: int
    memory_limit: int
    pids: int
    pids_peak: int
    oom_kills: int
    #: Bytes that the kernel keeps for the sandbox beside its memory, by kind.
    kernel_memory: Dict[str, int]
    disk: int
    disk_limit: int
    inodes: int
    io_bytes: int
    net_bytes: int
    execs: int
    network: NetworkCounts


@dataclass(eq=False)
class NetworkState(Model):
    """What is in force, and what was used."""

    policy: Dict[str, Any]
    #: `in force`, `off`, `hibernated`, or `closed`: nothing passes until egress is back.
    state: str
    counts: NetworkCounts
    #: Of it and its forks together.
    tree_counts: NetworkCounts
    #: Mode `observe`: the rules that would have been enough.
    observed: Optional[Dict[str, Any]] = None


@dataclass(eq=False)
class NetworkRefusal(Model):
    """Something that it wanted to reach and was refused."""

    time: datetime
    first: datetime
    times: int
    to: str
    port: Optional[int]
    #: stream, lookup, or unreachable: it is allowed, and its server could not be reached.
    what: str
    pid: Optional[int]
    command: Optional[str]
    reason: str
    #: A rule that would allow it; None: none can.
    rule: Optional[str]
    fix: str
    #: Of a virtual machine: pid and command are what it says of itself.
    claimed: bool = False


@dataclass(eq=False)
class Event(Model):
    """`sandbox.created`, `exec.ended`, `file.write`, …; its own fields are in `data`."""

    id: Optional[str]
    type: str
    data: Dict[str, Any]


@dataclass(eq=False)
class FileStat(Model):
    path: str
    #: file, dir, link or other.
    type: str
    size: int
    #: Octal, as in "0644".
    mode: str
    uid: int
    gid: int
    mtime: datetime
    #: Of a link.
    target: Optional[str] = None

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"


class FileList(List[FileStat]):
    """The content of a folder, at most 10,000 entries."""

    #: There are more.
    truncated: bool = False


@dataclass(eq=False)
class FileEvent(Model):
    """A change below a watched path."""

    #: created, modified, removed or moved.
    type: str
    path: str
    #: Of the changed file itself: file, dir, …
    kind: Optional[str]


@dataclass(eq=False)
class Skipped(Model):
    name: str
    why: str


@dataclass(eq=False)
class Extracted(Model):
    """What was unpacked, there or here, and what was not."""

    files: int
    bytes: int
    skipped: List[Skipped] = field(default_factory=list)
    #: How many were skipped; `skipped` has the first of them.
    skipped_total: int = 0


@dataclass(eq=False)
class Checkpoint(Model):
    """A state of a sandbox that was kept."""

    id: str
    name: str
    label: Optional[str]
    metadata: Dict[str, str]
    tenant: str
    #: The id of the sandbox that it was taken from.
    sandbox: str
    sandbox_name: Optional[str]
    parent: Optional[str]
    image: Optional[str]
    isolation: str
    memory: bool
    #: Why there is no memory in it although `auto` asked for it.
    memory_refused: Optional[str]
    cut: Optional[Cut]
    size: int
    memory_size: int
    files: int
    depth: int
    pause_ms: float
    #: made or damaged.
    state: str
    created_at: datetime
    config: Dict[str, Any]


@dataclass(eq=False)
class ImageConfig(Model):
    """What sandboxes take from their image if the request says nothing."""

    user: Optional[str] = None
    workdir: Optional[str] = None
    env: List[str] = field(default_factory=list)
    entrypoint: Optional[List[str]] = None
    cmd: Optional[List[str]] = None
    labels: Dict[str, str] = field(default_factory=dict)
    ports: List[str] = field(default_factory=list)
    volumes: List[str] = field(default_factory=list)
    stop_signal: Optional[str] = None
    shell: Optional[List[str]] = None
    onbuild: List[str] = field(default_factory=list)


@dataclass(eq=False)
class ImageLayer(Model):
    diff_id: str
    #: Of the layer as the registry has it; None if it was not pulled.
    digest: Optional[str]
    size: int
    files: int


@dataclass(eq=False)
class Image(Model):
    """A stored image."""

    #: As users type it: python:3.12-slim.
    name: str
    full_name: str
    digest: str
    tenant: str
    public: bool
    #: UID:GID of its commands; None: its files do not know its user.
    user: Optional[str]
    architecture: Optional[str]
    created: Optional[str]
    stored_at: datetime
    #: Bytes of its layers in the store.
    size: int
    source: Dict[str, Any]
    config: ImageConfig
    #: The lowest first.
    layers: List[ImageLayer]
    history: List[Dict[str, Any]]


@dataclass(eq=False)
class ImageOutdated(Model):
    name: str
    digest: str
    registry_digest: str
    outdated: bool


@dataclass(eq=False)
class PullProgress(Model):
    operation: str
    kind: str
    time: datetime
    #: Layers of the image, and how many of them are ready.
    layers: int = 0
    ready: int = 0
    #: Bytes that have come, of `total`.
    bytes: int = 0
    total: int = 0


@dataclass(eq=False)
class BuildEvent(Model):
    """What happens during a build."""

    #: step, output, pull or warning.
    type: str
    #: The number of a step, of `total`.
    step: Optional[int] = None
    total: Optional[int] = None
    #: Of a step: begun, done or cached.
    state: Optional[str] = None
    stage: Optional[str] = None
    #: Of the Dockerfile.
    line: Optional[int] = None
    ms: Optional[float] = None
    #: Of output: stdout or stderr.
    stream: Optional[str] = None
    text: Optional[str] = None
    #: The image that is pulled.
    image: Optional[str] = None


@dataclass(eq=False)
class Freed(Model):
    layers: int
    bytes: int
    #: Of builds, that were forgotten.
    steps: Optional[int] = None


@dataclass(eq=False)
class DiffEntry(Model):
    path: str
    #: added, changed or removed.
    change: str
    type: str
    size: Optional[int]
    old_size: Optional[int]
    mode: Optional[str] = None
    old_mode: Optional[str] = None
    #: A unified diff.
    text: Optional[str] = None
    #: The path itself, if it is not UTF-8.
    path_bytes: Optional[bytes] = None

    def _take(self, wire: Any) -> None:
        super()._take(wire)
        coded = self.extra.pop("path_base64", None)
        if coded is not None:
            self.path_bytes = base64_bytes(coded)


@dataclass(eq=False)
class Diff(Model):
    source: str = renamed("from")
    target: str = renamed("to")
    entries: List[DiffEntry] = field(default_factory=list)
    truncated: bool = False
    added: int = 0
    changed: int = 0
    removed: int = 0

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return diff_bundle(self)


@dataclass(eq=False)
class Promoted(Model):
    added: int
    changed: int
    removed: int
    #: Paths that both had changed, with `force`.
    conflicts: List[str] = field(default_factory=list)


@dataclass(eq=False)
class Port(Model):
    port: int
    public: bool
    has_token: bool
    #: Below the server's URL.
    path: str
    #: Its own host name, if the server has one for it.
    host: Optional[str]
    created_at: Optional[datetime]
    #: Only in the answer that made it.
    token: Optional[str] = None


@dataclass(eq=False)
class Secret(Model):
    """All that there is to know of a secret except its value."""

    name: str
    tenant: str
    version: int
    size: int
    description: Optional[str]
    created_at: datetime
    updated_at: datetime


@dataclass(eq=False)
class Template(Model):
    name: str
    tenant: str
    version: int
    checkpoint: Optional[str]
    warm: Optional[Dict[str, Any]]
    start: Optional[Dict[str, Any]]
    config: Dict[str, Any]
    description: Optional[str]
    created_at: datetime
    updated_at: datetime


@dataclass(eq=False)
class Pool(Model):
    name: str
    tenant: str
    template: str
    min: int
    max: int
    ready: int
    #: Ready, or handed out and still there.
    alive: int
    served: int
    missed: int
    failed: int
    last_error: Optional[str]
    created_at: datetime


@dataclass(eq=False)
class ServerInfo(Model):
    version: str
    api: int
    isolation: List[str]
    limits: Dict[str, Any]
    counts: Dict[str, int]
    features: Dict[str, Any] = field(default_factory=dict)
    machines: Dict[str, Any] = field(default_factory=dict)
    noid: Dict[str, Any] = field(default_factory=dict)
    #: The public key that exports are signed with.
    export_key: Optional[str] = None


@dataclass(eq=False)
class Whoami(Model):
    tenant: str
    token: Dict[str, Any]
    user_id: str
    name: str
    scope: Optional[str] = None


@dataclass(eq=False)
class Version(Model):
    version: str
    api_version: int


@dataclass(eq=False)
class Token(Model):
    id: str
    tenant: str
    name: Optional[str]
    scope: Optional[str]
    created_at: Optional[datetime]
    expires_at: Optional[datetime]
    old_until: Optional[datetime]
    rate: Optional[Dict[str, Any]]
    #: Only in the answer that made it.
    token: Optional[str] = field(default=None, repr=False)


@dataclass(eq=False)
class Tenant(Model):
    id: str
    quotas: Dict[str, Any]
    used: Dict[str, Any] = field(default_factory=dict)
    rate: Optional[Dict[str, Any]] = None
    created_at: Optional[datetime] = None


@dataclass(eq=False)
class AuditRecord(Model):
    """One record; fields of its kind are in `extra`."""

    seq: int
    time: datetime
    kind: str
    tenant: Optional[str] = None
    token: Optional[str] = None
    request_id: Optional[str] = None
    sandbox: Optional[str] = None
    exec: Optional[str] = None
    prev: Optional[str] = None
    hash: Optional[str] = None


@dataclass(eq=False)
class AuditVerdict(Model):
    ok: bool
    records: int
    head: Dict[str, Any]
    #: Names the record that is wrong.
    error: Optional[str] = None
