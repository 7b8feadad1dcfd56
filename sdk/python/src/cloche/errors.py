"""The exceptions of this package.

ClocheError is the parent of all. What the server refuses has the server's own word in `code`, and, as far as the server
knows, why (`cause`), what to do (`remedy`), and the id under which its log and audit have the call (`request_id`).
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NoReturn, Optional, Tuple, Type, cast

from .reasons import Reason


class ClocheError(Exception):
    """Something failed. Subclasses say what kind of failure it is; `code` is finer than the class."""

    def __init__(
        self,
        message: str,
        *,
        code: str,
        status: int = 0,
        cause: Optional[str] = None,
        remedy: Optional[str] = None,
        reason: Optional[Reason] = None,
        request_id: Optional[str] = None,
        retry_after: Optional[float] = None,
        details: Optional[Dict[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The server's word (`not_found`, `conflict`, `rate`, …), or `connection`, `timeout`, `protocol`, … of this side.
        self.code = code
        #: The HTTP status; 0 if there was no answer.
        self.status = status
        #: Why, if it is known and not in the message.
        self.cause = cause
        #: What to do about it, if the server knows.
        self.remedy = remedy
        #: A word for programs that is finer than `code`: cloche.REASONS has all. A newer server may have words that are
        #: not in it. None if there was no answer, or the server is older.
        self.reason = reason
        #: The id of this call in the server's log and audit.
        self.request_id = request_id
        #: Seconds until another try may succeed, if the server said so.
        self.retry_after = retry_after
        #: What the server said besides, such as `conflicts` of a promote.
        self.details: Dict[str, Any] = details or {}

    def __str__(self) -> str:
        text = self.message
        if self.cause and self.cause not in text:
            text += f": {self.cause}"
        if self.remedy:
            text += f"; {self.remedy}"
        return text + (f" [{self.code}, request {self.request_id}]" if self.request_id else f" [{self.code}]")

    # Exceptions are pickled by their positional arguments, which would lose the rest.
    def __reduce__(self) -> Tuple[Any, ...]:
        state = {k: v for k, v in self.__dict__.items() if k != "message"}
        return (_rebuild, (type(self), self.message, state))


def _rebuild(cls: Type[ClocheError], message: str, state: Dict[str, Any]) -> ClocheError:
    return cls(message, **state)


class InvalidError(ClocheError, ValueError):
    """400: the request is not valid; or an argument that this package refuses before it asks the server."""


class UnauthorizedError(ClocheError):
    """401: no token, or one that is unknown, expired or revoked."""


class DeniedError(ClocheError):
    """403: the token lacks the scope."""


class NotFoundError(ClocheError):
    """404: it does not exist, or belongs to another tenant."""


class ConflictError(ClocheError):
    """409: the name is taken, or the state of the sandbox does not allow the call."""


class TooLargeError(ClocheError):
    """413 and its like: the body, path or header exceeds a limit."""


class RefusedError(ClocheError):
    """422: the request is valid, but failed in the sandbox."""


class RateLimitError(ClocheError):
    """429: too many calls (`rate`, with `retry_after`), or a quota is used up (`quota`)."""


class UnsupportedError(ClocheError):
    """501: this host or version cannot enforce it or does not have it."""


class LostError(ClocheError):
    """502: the sandbox ended during the call."""


class ExhaustedError(ClocheError):
    """503: the host has no free resources now."""


class RequestTimeoutError(ClocheError, TimeoutError):
    """504, or no answer within the time that the client waits. Also a TimeoutError."""


class ConnectionFailedError(ClocheError, ConnectionError):
    """No connection, or it broke. Also a ConnectionError."""


class ProtocolError(ClocheError):
    """The other side does not speak the expected protocol, or sends more than any limit allows."""


class DetachedError(ClocheError):
    """The output of this exec is no longer followed."""


class FileMissingError(NotFoundError, FileNotFoundError):
    """No such file or folder in the sandbox. Also a FileNotFoundError."""


class PermissionDeniedError(DeniedError, PermissionError):
    """The user in the sandbox lacks permission for the path. Also a PermissionError."""


class IsAFolderError(RefusedError, IsADirectoryError):
    """The path is a folder. Also an IsADirectoryError."""


class NotAFolderError(RefusedError, NotADirectoryError):
    """A part of the path, or the working folder of a command, is not a folder. Also a NotADirectoryError."""


class FileThereError(ConflictError, FileExistsError):
    """There is already a file or folder of this name. Also a FileExistsError."""


class ProgramMissingError(RefusedError, FileNotFoundError):
    """The command, or the interpreter in its first line, is not in the sandbox. Also a FileNotFoundError."""


class NotExecutableError(RefusedError, PermissionError):
    """The user may not execute the command, or its working folder is closed to the user. Also a PermissionError."""


class FolderMissingError(RefusedError, FileNotFoundError):
    """The working folder of a command does not exist. Also a FileNotFoundError."""


class UserUnknownError(RefusedError, LookupError):
    """The sandbox has no such user or group. Also a LookupError."""


class NameTakenError(ConflictError):
    """409: the name is in use."""


class QuotaError(RateLimitError):
    """429: a quota or a limit of the tenant is used up; waiting does not help."""


# Reasons that have a class of their own. Each is a subclass of that of its code.
CLASSES: Mapping[str, Type[ClocheError]] = {
    "file_missing": FileMissingError,
    "permission": PermissionDeniedError,
    "is_a_folder": IsAFolderError,
    "not_a_folder": NotAFolderError,
    "file_exists": FileThereError,
    "program_missing": ProgramMissingError,
    "not_executable": NotExecutableError,
    "folder_permission": NotExecutableError,
    "folder_missing": FolderMissingError,
    "user_unknown": UserUnknownError,
    "group_unknown": UserUnknownError,
    "name_taken": NameTakenError,
    "quota": QuotaError,
    "limit": QuotaError,
}

# A code has one status. On a WebSocket only the code arrives, so the table is read both ways.
KINDS: Mapping[str, Tuple[int, Type[ClocheError]]] = {
    "invalid": (400, InvalidError),
    "unauthorized": (401, UnauthorizedError),
    "denied": (403, DeniedError),
    "not_found": (404, NotFoundError),
    "method": (405, ClocheError),
    "conflict": (409, ConflictError),
    "too_large": (413, TooLargeError),
    "refused": (422, RefusedError),
    "rate": (429, RateLimitError),
    "quota": (429, RateLimitError),
    "internal": (500, ClocheError),
    "unsupported": (501, UnsupportedError),
    "lost": (502, LostError),
    "exhausted": (503, ExhaustedError),
    "timeout": (504, RequestTimeoutError),
}


def _text(v: object) -> Optional[str]:
    return v if isinstance(v, str) and v != "" else None


def error_from_wire(
    wire: object,
    status: int = 0,
    *,
    request_id: Optional[str] = None,
    retry_after: Optional[float] = None,
    details: Optional[Dict[str, Any]] = None,
) -> ClocheError:
    """The exception for an answer. `wire` may be anything: a proxy in between answers in its own words."""
    w: Dict[str, Any] = wire if isinstance(wire, dict) else {}
    by_status = next((k for k, (s, _) in KINDS.items() if s == status), None)
    code = _text(w.get("code")) or by_status or "unknown"
    kind = KINDS.get(code) or (KINDS[by_status] if by_status else None)
    base = kind[1] if kind else ClocheError
    finer = CLASSES.get(_text(w.get("reason")) or "", base)
    return (finer if issubclass(finer, base) else base)(
        _text(w.get("message")) or f"the server answered with status {status}",
        code=code,
        status=status or (kind[0] if kind else 0),
        cause=_text(w.get("cause")),
        remedy=_text(w.get("remedy")),
        reason=cast(Optional[Reason], _text(w.get("reason"))),
        request_id=_text(w.get("request_id")) or request_id,
        retry_after=retry_after,
        details=details,
    )


def invalid(message: str, remedy: Optional[str] = None) -> NoReturn:
    """Refuses an argument before any call is made."""
    raise InvalidError(message, code="invalid", remedy=remedy)
