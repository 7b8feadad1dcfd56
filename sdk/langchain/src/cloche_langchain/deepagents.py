"""A deepagents backend: its commands run in a Cloche sandbox, and its files are the sandbox's.

    with Cloche() as client, client.sandboxes.create() as sandbox:
        agent = create_deep_agent(model, backend=ClocheBackend(sandbox))

deepagents' base class does everything by scripts that it runs in the sandbox. Here reads, writes, listings, uploads, downloads
and deletions are calls of the file API, which start no process. edit, grep and glob stay scripts: they run where the data is.
"""

from __future__ import annotations

import asyncio
import dataclasses
from importlib.metadata import version
from typing import Any, List, Optional, Tuple

from cloche import ClocheError, ConflictError, InvalidError, NotFoundError, Sandbox
from cloche.options import Duration
from deepagents.backends import protocol
from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    LsResult,
    ReadResult,
    WriteResult,
)
from deepagents.backends.sandbox import BaseSandbox

from ._pages import Page, read_page
from ._words import of_the_path, word_of

# Since 0.7 `write` replaces a file that exists; before, that was an error.
REPLACES = tuple(int(n) for n in version("deepagents").split(".")[:2]) >= (0, 7)
DeleteResult: Any = getattr(protocol, "DeleteResult", None)  # since 0.7
READ_FIELDS = {f.name for f in dataclasses.fields(ReadResult)}
MERGED = 'exec /bin/sh -c "$1" 2>&1'
OUTPUT_LIMIT = "16M"


class ClocheBackend(BaseSandbox):
    """`timeout` ends commands of calls that set none; `user` is who runs them and owns the files."""

    def __init__(self, sandbox: Sandbox, *, timeout: Duration = "30m", user: Optional[str] = None) -> None:
        self.sandbox = sandbox
        self._timeout, self._user = timeout, user

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """A timeout of 0 is none but the sandbox's own."""
        limit = self._timeout if timeout is None else (timeout or None)
        r = self.sandbox.exec(
            ["/bin/sh", "-c", MERGED, "sh", command], timeout=limit, user=self._user, output_limit=OUTPUT_LIMIT
        )
        output = r.stdout
        if r.verdict.cause != "exited":
            output += f"\n[{r.verdict.cause}: {r.verdict.detail or 'the command was ended'}]"
        return ExecuteResponse(output=output, exit_code=r.exit_code, truncated=r.truncated.stdout)

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        return await asyncio.to_thread(self.execute, command, timeout=timeout)

    # --- files ---

    def ls(self, path: str) -> LsResult:
        try:
            found = self.sandbox.files.list(path, user=self._user)
        except ClocheError as e:
            if not of_the_path(e):
                raise
            return LsResult(error=f"Path '{path}': {self._word(e, path)}", entries=None)
        if found.truncated or not found:  # too many for one answer; or perhaps a link to a folder, which the script follows
            return super().ls(path)
        return LsResult(entries=[{"path": f.path, "is_dir": f.type == "dir"} for f in found])

    async def als(self, path: str) -> LsResult:
        return await asyncio.to_thread(self.ls, path)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        try:
            page = read_page(lambda at, size: self._range(file_path, at, size), file_path, max(0, int(offset)), int(limit))
        except ClocheError as e:
            if not of_the_path(e):
                raise
            page = Page(error=self._word(e, file_path))
        if page.error is not None:
            return ReadResult(error=f"File '{file_path}': {page.error}")
        more = {k: v for k, v in page.window().items() if k in READ_FIELDS}
        return ReadResult(file_data={"content": page.content, "encoding": page.encoding}, **more)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        return await asyncio.to_thread(self.read, file_path, offset, limit)

    def write(self, file_path: str, content: str) -> WriteResult:
        try:
            self.sandbox.files.write(file_path, content, user=self._user, exclusive=not REPLACES)
        except ConflictError:
            return WriteResult(error=f"Error: File already exists: '{file_path}'")
        except ClocheError as e:
            if not of_the_path(e):
                raise
            return WriteResult(error=f"Failed to write file '{file_path}': {self._word(e, file_path)}")
        return WriteResult(path=file_path)

    async def awrite(self, file_path: str, content: str) -> WriteResult:
        return await asyncio.to_thread(self.write, file_path, content)

    def delete(self, file_path: str) -> Any:
        """A DeleteResult, of deepagents 0.7 and later."""
        if DeleteResult is None:
            raise NotImplementedError("deepagents has deletions from 0.7 on")
        try:
            self.sandbox.files.stat(file_path, user=self._user)
            self.sandbox.files.remove(file_path, recursive=True, user=self._user)
        except ClocheError as e:
            if not of_the_path(e):
                raise
            word = self._word(e, file_path)
            missing = f"Error: '{file_path}' not found"
            return DeleteResult(error=missing if word == "file_not_found" else f"Error deleting '{file_path}': {word}")
        return DeleteResult(path=file_path)

    async def adelete(self, file_path: str) -> Any:
        return await asyncio.to_thread(self.delete, file_path)

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, data)) for path, data in files]

    def _upload(self, path: str, data: bytes) -> Optional[str]:
        if not path.startswith("/"):
            return "invalid_path"
        try:
            self.sandbox.files.write(path, data, user=self._user)
        except ClocheError as e:
            if not of_the_path(e):
                raise
            return self._word(e, path)
        return None

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not path.startswith("/"):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.files.read(path, user=self._user))
        except ClocheError as e:
            if not of_the_path(e):
                raise
            return FileDownloadResponse(path=path, error=self._word(e, path))

    def _range(self, path: str, at: int, size: int) -> bytes:
        try:
            return self.sandbox.files.read(path, offset=at, length=size, user=self._user)
        except InvalidError as e:
            if e.status != 416:
                raise
            return b""  # it ends before this byte

    def _word(self, e: ClocheError, path: str) -> str:
        """deepagents' word for what is wrong with a path."""
        if isinstance(e, NotFoundError):
            self.sandbox.refresh()  # a sandbox that is gone is no missing file: this raises
            return "file_not_found"
        return word_of(e)
