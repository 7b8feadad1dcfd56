"""A sandbox client for the SDK's sandbox agents: sessions are Cloche sandboxes.

    client = ClocheSandboxClient()
    async with await client.create(manifest=manifest, options=ClocheSandboxOptions()) as session:
        …

A session's workspace is the work folder of a sandbox. Commands and files are calls of the API, as the user that is asked for.
When a session ends its sandbox is deleted; what is to stay goes into the session's snapshot.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
import uuid
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Sequence, Tuple, Union

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from cloche import AsyncCloche, AsyncSandbox, ClocheError, NotFoundError, RefusedError

OUTPUT_LIMIT = 16 * 1024 * 1024
AnyUser = Union[str, User, None]


class ClocheSandboxOptions(BaseSandboxClientOptions):
    """`create` has fields of a create (docs/api.md): image, memory, network, … A timeout ends sandboxes of a killed program."""

    type: Literal["cloche"] = "cloche"
    create: Dict[str, Any] = {"timeout": "24h"}


class ClocheSandboxState(SandboxSessionState):
    type: Literal["cloche"] = "cloche"
    sandbox_id: str
    create: Dict[str, Any]


def _name(user: AnyUser) -> Optional[str]:
    return user.name if isinstance(user, User) else user


class ClocheSandboxSession(BaseSandboxSession):
    """One sandbox. `sandbox` is the SDK's, for what this interface has no call for."""

    state: ClocheSandboxState

    def __init__(self, state: ClocheSandboxState, sandbox: AsyncSandbox) -> None:
        self.state, self.sandbox = state, sandbox

    def _runtime_helpers(self) -> Tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def _validate_path_access(self, path: Union[Path, str], *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    # --- commands ---

    async def exec(
        self,
        *command: Union[str, Path],
        timeout: Optional[float] = None,
        shell: Union[bool, List[str]] = True,
        user: AnyUser = None,
    ) -> ExecResult:
        prepared = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._run(prepared, timeout, _name(user))

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        return await self._run([str(c) for c in command], timeout, None)

    async def _run(self, command: Sequence[str], timeout: Optional[float], user: Optional[str]) -> ExecResult:
        try:
            r = await self.sandbox.exec(
                command, cwd=self.state.manifest.root, user=user, timeout=timeout or 0, output_limit=OUTPUT_LIMIT, binary=True,
                kill_on_cancel=True)
        except RefusedError as e:  # no such program, no such user, …
            return ExecResult(stdout=b"", stderr=f"{e}\n".encode(), exit_code=127)
        except ClocheError as e:
            raise ExecTransportError(command=command, cause=e, message=str(e)) from e
        if r.verdict.cause == "timeout":
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        stderr = r.stderr_bytes or b""
        if r.verdict.cause not in ("exited", "signaled"):
            stderr += f"[{r.verdict.cause}: {r.verdict.detail or 'the command was ended'}]\n".encode()
        return ExecResult(stdout=r.stdout_bytes or b"", stderr=stderr, exit_code=r.exit_code)

    # --- files ---

    async def read(self, path: Path, *, user: AnyUser = None) -> io.IOBase:
        there = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.sandbox.files.read(there.as_posix(), user=_name(user)))
        except NotFoundError as e:
            raise WorkspaceReadNotFoundError(path=there, cause=e) from e
        except ClocheError as e:
            raise WorkspaceArchiveReadError(path=there, cause=e) from e

    async def write(self, path: Path, data: io.IOBase, *, user: AnyUser = None) -> None:
        there = await self._validate_path_access(path, for_write=True)
        try:
            await self.sandbox.files.write(there.as_posix(), _bytes(data, there), user=_name(user))
        except ClocheError as e:
            raise WorkspaceArchiveWriteError(path=there, cause=e, message=str(e)) from e

    async def persist_workspace(self) -> io.IOBase:
        root, skip = self._workspace_root_path(), self._persist_workspace_skip_relpaths()
        spool = tempfile.TemporaryFile()
        try:
            async with await self.sandbox.files.archive(root.as_posix()) as pieces:
                async for piece in pieces:
                    spool.write(piece)
        except ClocheError as e:
            raise WorkspaceArchiveReadError(path=root, cause=e) from e
        spool.seek(0)
        return _without(spool, skip) if skip else spool

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        try:
            done = await self.sandbox.files.extract(root.as_posix(), _bytes(data, root))
        except ClocheError as e:
            raise WorkspaceArchiveWriteError(path=root, cause=e, message=str(e)) from e
        if done.skipped:
            raise WorkspaceArchiveWriteError(path=root, message=f"the archive has entries that were refused: {done.skipped[0].name}")

    # --- life ---

    async def running(self) -> bool:
        try:
            await self.sandbox.refresh()
        except ClocheError:
            return False
        return self.sandbox.state == "running"

    async def _shutdown_backend(self) -> None:
        await self.sandbox.delete()


class ClocheSandboxClient(BaseSandboxClient[ClocheSandboxOptions]):
    """`client` is shared and stays open; without one, that of CLOCHE_URL and CLOCHE_TOKEN is made. `aclose()` closes that."""

    backend_id = "cloche"
    supports_default_options = True

    def __init__(self, client: Optional[AsyncCloche] = None) -> None:
        super().__init__()
        self.client, self._own = client or AsyncCloche(), client is None

    async def create(
        self,
        *,
        snapshot: Union[SnapshotSpec, SnapshotBase, None] = None,
        manifest: Optional[Manifest] = None,
        options: Optional[ClocheSandboxOptions] = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        create = (options or ClocheSandboxOptions()).create
        sandbox = await self._make(create, manifest)
        number = uuid.uuid4()
        state = ClocheSandboxState(
            session_id=number, snapshot=resolve_snapshot(snapshot, str(number)), manifest=manifest, sandbox_id=sandbox.id, create=create
        )
        return self._wrap_session(ClocheSandboxSession(state, sandbox))

    async def _make(self, create: Dict[str, Any], manifest: Manifest) -> AsyncSandbox:
        return await self.client.sandboxes.create(**{**create, "workdir": manifest.root})

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, ClocheSandboxSession):
            raise TypeError(f"expected a session of this client, got {type(inner).__name__}")
        await inner.sandbox.delete()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """With its sandbox if that is still there, else with a new one, which start() fills from the snapshot."""
        if not isinstance(state, ClocheSandboxState):
            raise TypeError(f"expected the state of a Cloche session, got {type(state).__name__}")
        state.assert_path_grants_rebound()
        try:
            sandbox, preserved = await self.client.sandboxes.get(state.sandbox_id), True
        except NotFoundError:
            sandbox, preserved = await self._make(state.create, state.manifest), False
            state.sandbox_id, state.workspace_root_ready = sandbox.id, False
        inner = ClocheSandboxSession(state, sandbox)
        inner._set_start_state_preserved(preserved)
        return self._wrap_session(inner)

    def deserialize_session_state(self, payload: Dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, ClocheSandboxState)

    async def aclose(self) -> None:
        if self._own:
            await self.client.aclose()


def _bytes(data: io.IOBase, path: Path) -> bytes:
    content = data.read()
    if isinstance(content, str):
        return content.encode()
    if not isinstance(content, (bytes, bytearray)):
        raise WorkspaceWriteTypeError(path=path, actual_type=type(content).__name__)
    return bytes(content)


def _without(spool: Any, skip: Any) -> io.IOBase:
    """The archive without some paths, and what is below them."""
    left = tempfile.TemporaryFile()
    with spool, tarfile.open(fileobj=spool) as old, tarfile.open(fileobj=left, mode="w") as new:
        for member in old:
            path = Path(member.name)
            if not any(path == s or s in path.parents for s in map(Path, skip)):
                new.addfile(member, old.extractfile(member) if member.isreg() else None)
    left.seek(0)
    return left
