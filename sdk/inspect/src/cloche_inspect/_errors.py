"""What errors of the API are to Inspect."""

from __future__ import annotations

import errno
import os
from typing import Optional

from cloche import ClocheError, ConnectionFailedError, DeniedError, LostError, NotFoundError
from inspect_ai.util import SandboxUnavailableError

#: Exit codes of shells for a program that cannot run; other refusals have 126, too.
NOT_FOUND = 127
CANNOT_RUN = 126

FILE_ERRNO = {
    "file_missing": errno.ENOENT,
    "permission": errno.EACCES,
    "not_executable": errno.EACCES,
    "read_only": errno.EROFS,
    "is_a_folder": errno.EISDIR,
    "not_a_folder": errno.ENOTDIR,
    "name_too_long": errno.ENAMETOOLONG,
    "link_loop": errno.ELOOP,
    "disk_full": errno.ENOSPC,
}


def gone(e: ClocheError, *, of_sandbox: bool = False) -> Optional[SandboxUnavailableError]:
    """The error of a sandbox that is no more, or of a daemon that is not there. `of_sandbox`: what is not found is the sandbox."""
    missing = e.reason == "sandbox_missing" or (of_sandbox and isinstance(e, NotFoundError))
    if missing or isinstance(e, (LostError, ConnectionFailedError)):
        return SandboxUnavailableError(str(e))
    return None


def file_error(e: ClocheError, path: str) -> Exception:
    """The exception that Python itself raises for such a file, or SandboxUnavailableError, or the error as it is."""
    unavailable = gone(e)
    if unavailable is not None:
        return unavailable
    number = FILE_ERRNO.get(e.reason or "")
    text = e.message.lower()
    if number is None:
        if isinstance(e, NotFoundError):
            number = errno.ENOENT
        elif isinstance(e, DeniedError) or "permission denied" in text:
            number = errno.EACCES
        elif "is a directory" in text:
            number = errno.EISDIR
        elif "not a directory" in text:
            number = errno.ENOTDIR
    if number is None:
        return e
    return OSError(number, os.strerror(number), path)  # Python makes it a FileNotFoundError, PermissionError, …
