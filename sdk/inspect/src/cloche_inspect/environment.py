"""The provider: each sample gets sandboxes of its own.

Commands and files are calls of the API. Nothing is put in front of a command inside the sandbox, so timeouts end its whole
process tree by the daemon's hand, and its PATH is that of the image.
"""

from __future__ import annotations

import posixpath
from typing import Any, ClassVar, Dict, List, Literal, Optional, Tuple, Union, overload

import anyio
from cloche import AsyncCloche, AsyncSandbox, ClocheError, InvalidError, NotFoundError, Result
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel

from ._errors import CANNOT_RUN, NOT_FOUND, file_error, gone
from .config import ClocheConfig, config_of

MARK = {"made-by": "cloche-inspect"}
MAX_OUTPUT = 16 * 1024 * 1024  # the most that the API keeps of a stream
STDIN_IN_REQUEST = 512 * 1024
CLEANUP_SECONDS = 30


@sandboxenv(name="cloche")
class ClocheSandboxEnvironment(SandboxEnvironment):
    """One sandbox. `sandbox` is the SDK's, for what Inspect has no call for."""

    # Those that were made and not deleted yet, so that the end of the task can.
    _live: ClassVar[Dict[str, "ClocheSandboxEnvironment"]] = {}

    def __init__(self, client: AsyncCloche, sandbox: AsyncSandbox) -> None:
        super().__init__()
        self.client, self.sandbox = client, sandbox

    # --- life ---

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return ClocheConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType]) -> None:
        """Fails before the first sample if there is no daemon, or the configuration is not valid."""
        config_of(config)
        async with AsyncCloche() as client:
            await client.whoami()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], metadata: Dict[str, str]
    ) -> Dict[str, SandboxEnvironment]:
        made: Dict[str, SandboxEnvironment] = {}
        client = AsyncCloche()
        try:
            for name, wanted in config_of(config).sandboxes().items():
                labels = {**MARK, "task": task_name[:256], "sandbox": name}
                sandbox = await client.sandboxes.create(**wanted.create_options(), metadata=labels)
                made[name] = cls._live[sandbox.id] = cls(client, sandbox)
        except BaseException:
            with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
                await cls._delete(made)
                await client.aclose()
            raise
        return made

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Optional[SandboxEnvironmentConfigType],
        environments: Dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
            await cls._delete(environments)
            for client in {e.as_type(cls).client for e in environments.values()}:
                await client.aclose()

    @classmethod
    async def _delete(cls, environments: Dict[str, SandboxEnvironment]) -> None:
        for environment in environments.values():
            one = environment.as_type(cls)
            try:
                await one.sandbox.delete()
            except ClocheError:
                continue  # the end of the task tries again
            cls._live.pop(one.sandbox.id, None)

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], cleanup: bool) -> None:
        left = [i for i, e in cls._live.items() if e.sandbox.metadata.get("task") == task_name[:256]]
        if not left:
            return
        if not cleanup:
            print(f"Sandboxes that were kept (`inspect sandbox cleanup cloche ID` deletes them): {' '.join(left)}")
        for i in left:
            environment = cls._live.pop(i)
            if cleanup:
                async with AsyncCloche() as client:
                    await client.sandboxes.delete(i)
            await environment.client.aclose()

    @classmethod
    async def cli_cleanup(cls, id: Optional[str]) -> None:
        """`inspect sandbox cleanup cloche [ID]`."""
        async with AsyncCloche() as client:
            if id is not None:
                await client.sandboxes.delete(id)
                return
            async for sandbox in client.sandboxes.list(metadata=MARK):
                await sandbox.delete()
                print(f"deleted {sandbox.id}")

    # --- commands ---

    async def exec(
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        room, room_text = _output_limit()
        options: Dict[str, Any] = {
            "cwd": None if cwd is None else posixpath.join(self.sandbox.workdir, cwd),
            "env": env,
            "user": user,
            "timeout": timeout or 0,  # 0: none but that of the sandbox
            "output_limit": room,
        }
        try:
            r = await self._run(cmd, input, options)
        except ClocheError as e:
            return self._refused(e, cmd)
        if r.truncated.stdout or r.truncated.stderr:
            raise OutputLimitExceededError(room_text, r.stdout if r.truncated.stdout else r.stderr)
        if r.verdict.cause == "timeout":
            late = TimeoutError(f"Command timed out after {timeout} seconds")
            setattr(late, "truncated_output", r.stdout + r.stderr)
            raise late
        stderr = r.stderr
        if r.verdict.cause not in ("exited", "signaled"):
            stderr += f"[{r.verdict.cause}: {r.verdict.detail or 'the command was ended'}]\n"
        return ExecResult(r.exit_code == 0, r.exit_code, r.stdout, stderr)

    async def _run(self, cmd: List[str], input: Union[str, bytes, None], options: Dict[str, Any]) -> Result:
        """Ends the command if this call is cancelled."""
        if input is None or len(input) <= STDIN_IN_REQUEST:
            return await self.sandbox.exec(cmd, stdin=input, kill_on_cancel=True, **options)
        run = await self.sandbox.start(cmd, stdin=True, **options)
        try:
            return await run.communicate(input)
        finally:
            with anyio.move_on_after(CLEANUP_SECONDS, shield=True):
                if run.result is None:
                    await run.kill()
                await run.detach()

    def _refused(self, e: ClocheError, cmd: List[str]) -> ExecResult[str]:
        """What kept the command from starting is its failure; but a file that is not executable is an exception to Inspect."""
        unavailable = gone(e, of_sandbox=True)
        if unavailable is not None:
            raise unavailable from e
        text = e.message.lower()
        if e.reason in ("not_executable", "permission") or (e.reason is None and "permission denied" in text):
            raise PermissionError(13, e.message, cmd[0]) from e
        if e.status != 422 and not isinstance(e, InvalidError):
            raise e
        missing = e.reason == "program_missing" or (e.reason is None and "no such file" in text)
        return ExecResult(False, NOT_FOUND if missing else CANNOT_RUN, "", str(e) + "\n")

    async def connection(self, *, user: Optional[str] = None) -> SandboxConnection:
        as_user = f" --user {user}" if user else ""
        return SandboxConnection(
            type="cloche", command=f"cloche shell{as_user} {self.sandbox.id}", container=self.sandbox.id
        )

    def default_polling_interval(self) -> float:
        return 0.2

    # --- files ---

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        try:
            # A write replaces the file, for which its folder must be writable. This says whether the file itself is.
            there = await self.sandbox.files.write(file, b"", append=True)
            await self.sandbox.files.write(file, contents, mode=there.mode)
        except ClocheError as e:
            raise await self._file_error(e, file) from e

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.sandbox.files.read(file, length=limit + 1)
        except ClocheError as e:
            if e.status != 416:
                raise await self._file_error(e, file) from e
            data = b""  # an empty file has no first byte
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def _file_error(self, e: ClocheError, file: str) -> Exception:
        if isinstance(e, NotFoundError) and e.reason is None:
            try:
                await self.sandbox.refresh()
            except NotFoundError as missing:
                return gone(missing, of_sandbox=True) or missing  # not the file is missing, but the sandbox
        return file_error(e, file)


def _output_limit() -> Tuple[int, str]:
    room = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if room > MAX_OUTPUT:
        return MAX_OUTPUT, "16 MiB"
    return room, SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
