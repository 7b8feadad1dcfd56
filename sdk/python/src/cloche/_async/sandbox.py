"""A sandbox, and what can be done with it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Type, Union

from .._display import Bundle, sandbox_bundle
from .._wire import listed, models, segment
from ..errors import ClocheError, InvalidError, NotFoundError, UnsupportedError
from ..executions import Execution
from ..models import Checkpoint, Diff, Event, ExecInfo, NetworkRefusal, NetworkState, Promoted, Result, SandboxInfo, Stats
from ..options import (
    Command,
    CopiedNetwork,
    Data,
    DiffSource,
    Duration,
    Idle,
    Language,
    Memory,
    Network,
    SecretUses,
    Size,
    Source,
    Terminal,
    diff_source,
    exec_body,
)
from .contexts import AsyncContext, AsyncContexts, Env, OnError, OnResult, OnText, context_named
from .events import follow_events
from .exec import AsyncExec, open_attach, start_background, start_exec, wait_for
from .files import AsyncFiles
from .ports import AsyncPorts
from .runtime import Cancelled, shielded
from .stream import AsyncStream
from .transport import AsyncTransport, Call, once

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from ..options import ExecOptions

# A request may have 4 MiB, in which base64 and escapes have to fit as well.
STDIN_IN_REQUEST = 512 * 1024
KILL_SECONDS = 10.0


def given(**fields: Any) -> Dict[str, Any]:
    """What was given: None is what was not."""
    return {k: v for k, v in fields.items() if v is not None}


class AsyncSandbox(SandboxInfo):
    """An isolated computer. Its fields are what the server said last; `refresh()` asks again.

    Leaving a `with` block deletes it.
    """

    def __init__(self, transport: AsyncTransport, wire: Any) -> None:
        self._transport = transport
        self._take(wire)
        self._path = f"/v1/sandboxes/{segment(self.id)}"
        #: Its files.
        self.files = AsyncFiles(transport, self._path)
        #: Servers that listen in it.
        self.ports = AsyncPorts(transport, self._path)
        #: Interpreters that keep their variables.
        self.contexts = AsyncContexts(transport, self._path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.state}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Bundle:
        return sandbox_bundle(self, type(self).__name__)

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.delete()
        except NotFoundError:
            pass  # it has ended otherwise
        except ClocheError:
            if value is None:
                raise
            # Otherwise what has ended the block is what the caller should see.

    async def _change(self, method: str, sub: str, json: Any = None, timeout: Optional[float] = None) -> None:
        # Each of these says what shall be, so that a repetition does no harm.
        self._take(await self._transport.json(Call(method, self._path + sub, json=json, timeout=timeout, repeatable=True)))

    # --- its life ---

    async def refresh(self) -> None:
        """Asks the server how it is now."""
        await self._change("GET", "")

    async def update(
        self,
        *,
        timeout: Optional[Duration] = None,
        idle: Union[Duration, Idle, None] = None,
        metadata: Optional[Mapping[str, str]] = None,
        name: Optional[str] = None,
        cpus: Optional[float] = None,
        memory: Optional[Size] = None,
        disk: Optional[Size] = None,
        pids: Optional[int] = None,
    ) -> None:
        """`timeout` counts from now. Limits are changed by a call of their own, without the other fields."""
        body = given(timeout=timeout, idle=idle, metadata=metadata, name=name, cpus=cpus, memory=memory, disk=disk, pids=pids)
        await self._change("PATCH", "", body)

    async def extend(self, timeout: Duration) -> None:
        """It is deleted so long from now."""
        await self._change("POST", "/extend", {"timeout": timeout})

    async def pause(self) -> None:
        """Freezes everything in it."""
        await self._change("POST", "/pause")

    async def resume(self) -> None:
        await self._change("POST", "/resume")

    async def wake(self) -> None:
        """The same as `resume`, for a sandbox that is hibernated."""
        await self.resume()

    async def stop(self) -> None:
        """Ends what runs in it and keeps its files (`storage="disk"`)."""
        await self._change("POST", "/stop")

    async def start_again(self) -> None:
        """Starts one that is stopped or lost again (`storage="disk"`)."""
        await self._change("POST", "/start")

    async def hibernate(self, *, memory: Optional[Memory] = None, network: Optional[CopiedNetwork] = None) -> None:
        """Saves files and processes to disk and frees everything else; any call wakes it."""
        await self._able_change("/hibernate", given(memory=memory, network=network) or None)

    async def delete(self) -> None:
        """Ends it, with all that runs and is in it."""
        await self._transport.json(Call("DELETE", self._path, gone_is_done=True))

    # --- commands ---

    async def exec(
        self,
        cmd: Command,
        *,
        stdin: Union[Source, None] = None,
        binary: bool = False,
        kill_on_cancel: bool = False,
        **options: Unpack[ExecOptions],
    ) -> Result:
        """Runs a command and gives how it ended, whatever its exit code. A str is a line for `/bin/sh`, a list a program.

        Never repeated by itself. If this call is cancelled, the command continues until its timeout, as it does when a client
        goes away; with `kill_on_cancel` it ends, for the price of a second round trip in each call.
        """
        if kill_on_cancel:
            return await self._exec_until(cmd, options, stdin, binary)
        if stdin is not None and not _fits(stdin):
            async with await self.start(cmd, stdin=True, **options) as streamed:
                return await streamed.communicate(stdin)
        body = exec_body(cmd, options, stdin=stdin, more={"encoding": "base64"} if binary else None)  # type: ignore[arg-type]  # pyright: ignore
        # How long a command may take is the server's clock to say.
        return Result.from_wire(await self._transport.json(Call("POST", f"{self._path}/execs", json=body, timeout=0)))

    async def _exec_until(self, cmd: Command, options: Any, stdin: Any, binary: bool) -> Result:
        """To end a command its id must be known before it has ended: it runs in the background and is waited for."""
        if stdin is not None and not _fits(stdin):
            raise InvalidError("so much stdin does not go with kill_on_cancel", code="invalid", remedy="use start() and communicate()")
        started = await start_background(self._transport, f"{self._path}/execs", cmd, options, stdin=stdin or False, binary=binary)
        path = f"{self._path}/execs/{started.id}"
        try:
            return await wait_for(self._transport, path, None)
        except Cancelled:
            await shielded(started.kill, KILL_SECONDS)
            raise

    async def run_code(
        self,
        code: str,
        *,
        language: Language = "python",
        context: Union[str, AsyncContext, None] = None,
        timeout: Optional[Duration] = None,
        env: Optional[Env] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[OnResult] = None,
        on_error: Optional[OnError] = None,
    ) -> Execution:
        """Runs code in a context, which keeps its variables: by default the one that its language has in each sandbox.

        Code that fails is no exception: see `error` and `verdict`. Callbacks get output and results as they come.
        """
        if not isinstance(context, AsyncContext):
            context = context_named(self._transport, self._path, context or language)
        return await context.execute(
            code, timeout=timeout, env=env, on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error
        )

    async def start(
        self,
        cmd: Command,
        *,
        stdin: Union[bool, Data] = False,
        tty: Union[bool, Terminal] = False,
        transport: Literal["websocket", "sse"] = "websocket",
        **options: Unpack[ExecOptions],
    ) -> AsyncExec:
        """Starts a command and follows it: iterate over its output, write to its `stdin`, `wait()` for its end.

        `stdin=True` opens `.stdin`; text or bytes are given to the command, and then it is closed.
        """
        if tty and transport == "sse":
            raise InvalidError("a terminal needs a WebSocket", code="invalid", remedy='leave out transport="sse"')
        sse = transport == "sse"
        return await start_exec(self._transport, f"{self._path}/execs", cmd, options, stdin=stdin, tty=tty, sse=sse)

    async def background(
        self,
        cmd: Command,
        *,
        stdin: Union[bool, Data] = False,
        tty: Union[bool, Terminal] = False,
        restart: Optional[Literal["no", "always"]] = None,
        idempotency_key: Optional[str] = None,
        **options: Unpack[ExecOptions],
    ) -> AsyncExec:
        """Starts a command that needs no listener; `attach()` finds it again. Its output is kept."""
        return await start_background(
            self._transport, f"{self._path}/execs", cmd, options, stdin=stdin, tty=tty, restart=restart, key=idempotency_key
        )

    async def pty(
        self, cmd: Command = ("/bin/sh", "-l"), *, rows: int = 24, cols: int = 80, **options: Unpack[ExecOptions]
    ) -> AsyncExec:
        """A terminal: one stream, `tty`, and `.stdin` is its keyboard."""
        return await self.start(cmd, tty={"rows": rows, "cols": cols}, **options)

    async def attach(self, exec_id: str, *, offset: int = 0, tty: Optional[bool] = None) -> AsyncExec:
        """Follows a command that was started earlier, from any byte of its output on."""
        path = f"{self._path}/execs/{segment(exec_id)}"
        if tty is None:
            tty = bool((await self._transport.json(Call("GET", path))).get("tty"))
        channel = await open_attach(self._transport, path, tty, offset)
        return AsyncExec(self._transport, f"{self._path}/execs", exec_id, tty=tty, channel=channel)

    async def execs(self) -> List[ExecInfo]:
        """The newest commands, running and ended."""
        return models(ExecInfo, (await self._transport.json(Call("GET", f"{self._path}/execs")))["execs"])

    # --- what it uses and may reach ---

    async def stats(self) -> Stats:
        return Stats.from_wire(await self._transport.json(Call("GET", f"{self._path}/stats")))

    async def get_network(self) -> NetworkState:
        """What it may reach, and what it has used."""
        return NetworkState.from_wire(await self._transport.json(Call("GET", f"{self._path}/network")))

    async def set_network(self, network: Network) -> NetworkState:
        """Changes what it may reach while it runs. It is in force when this returns; connections no longer allowed end."""
        body = {"mode": network} if isinstance(network, str) else network
        state = NetworkState.from_wire(await self._transport.json(Call("PUT", f"{self._path}/network", json=body)))
        self.network = state.policy
        return state

    async def why(self) -> List[NetworkRefusal]:
        """What it was refused, the newest first, each with what would allow it."""
        wire = await self._transport.json(Call("GET", f"{self._path}/network", query={"why": True}))
        return models(NetworkRefusal, wire["refusals"])

    def events(self, *, last_event_id: Optional[str] = None) -> AsyncStream[Event]:
        """What happens to it, as it happens; `last_event_id` continues where an earlier loop ended."""
        return follow_events(self._transport, f"{self._path}/events", last_event_id)

    # --- checkpoints ---

    async def _able(self, call: Call) -> Any:
        """A server of an earlier version does not know the path. That is not a missing sandbox, so it is asked what it has."""
        try:
            return await self._transport.json(call)
        except ClocheError as e:
            if e.status not in (404, 405):
                raise
            info = await self._transport.json(Call("GET", "/v1/info"))
            if info.get("features", {}).get("checkpoints") is True:
                raise
            raise UnsupportedError(
                "this server has no checkpoints", code="unsupported", status=501, cause=e.message, request_id=e.request_id
            ) from e

    async def _able_change(self, sub: str, json: Any, timeout: Optional[float] = 0) -> None:
        self._take(await self._able(Call("POST", self._path + sub, json=json, timeout=timeout, repeatable=True)))

    async def checkpoint(
        self,
        name: Optional[str] = None,
        *,
        label: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        memory: Optional[Memory] = None,
        network: Optional[CopiedNetwork] = None,
    ) -> Checkpoint:
        """Keeps its state, under a name if one is given. It continues."""
        body = given(name=name, label=label, metadata=metadata, memory=memory, network=network)
        # Much memory takes its time.
        return Checkpoint.from_wire(await self._able(once(Call("POST", f"{self._path}/checkpoints", json=body, timeout=0))))

    async def checkpoints(self) -> List[Checkpoint]:
        """Its checkpoints, newest first."""
        out: List[Checkpoint] = []
        cursor: Optional[str] = None
        while True:
            page = await self._able(Call("GET", f"{self._path}/checkpoints", query={"cursor": cursor}))
            out += models(Checkpoint, page["checkpoints"])
            cursor = page.get("next")
            if cursor is None:
                return out

    async def restore(self, checkpoint: Union[str, Checkpoint]) -> None:
        """Back to a checkpoint (its id, or the name of one of its own), in place."""
        body = {"checkpoint": checkpoint if isinstance(checkpoint, str) else checkpoint.id}
        await self._able_change("/restore", body)

    async def restore_as(self, checkpoint: Union[str, Checkpoint], name: str) -> AsyncSandbox:
        """A new sandbox of a checkpoint."""
        body = {"checkpoint": checkpoint if isinstance(checkpoint, str) else checkpoint.id, "as": name}
        call = once(Call("POST", f"{self._path}/restore", json=body, timeout=0))
        return AsyncSandbox(self._transport, await self._able(call))

    async def fork(
        self,
        count: Optional[int] = None,
        *,
        names: Optional[Sequence[str]] = None,
        memory: Optional[Memory] = None,
        network: Optional[CopiedNetwork] = None,
        secrets: Optional[SecretUses] = None,
    ) -> List[AsyncSandbox]:
        """Copies of it as it is now, running processes included. It continues."""
        if count is None:
            count = len(names) if names else 1
        body = given(count=count, names=list(names) if names else None, memory=memory, network=network, secrets=secrets)
        wire = await self._able(once(Call("POST", f"{self._path}/fork", json=body, timeout=0)))
        return [AsyncSandbox(self._transport, x) for x in listed(wire["sandboxes"], "sandboxes")]

    async def diff(self, source: Optional[DiffSource] = None, *, text: bool = False) -> Diff:
        """Which files differ from its image, or from another state."""
        query = {"from": diff_source(source), "text": text or None}
        return Diff.from_wire(await self._able(Call("GET", f"{self._path}/diff", query=query, timeout=0)))

    async def promote(self, fork: Union[str, SandboxInfo], *, force: bool = False) -> Promoted:
        """Brings what a fork of it has changed back into this one.

        A ConflictError if both have changed the same path differently (`e.details["conflicts"]`); `force` takes the fork's.
        """
        body: Dict[str, Any] = {"from": fork if isinstance(fork, str) else fork.id}
        if force:
            body["force"] = True
        return Promoted.from_wire(await self._able(Call("POST", f"{self._path}/promote", json=body, timeout=0)))


def _fits(stdin: object) -> bool:
    return isinstance(stdin, (str, bytes, bytearray, memoryview)) and len(stdin) <= STDIN_IN_REQUEST
