"""What errors of the file API are to deepagents."""

from __future__ import annotations

from cloche import ClocheError, ConflictError, DeniedError, InvalidError, NotFoundError, RefusedError

WORDS = {
    "file_missing": "file_not_found",
    "is_a_folder": "is_directory",
    "permission": "permission_denied",
    "read_only": "permission_denied",
    "not_a_folder": "invalid_path",
    "not_a_file": "invalid_path",
    "name_too_long": "invalid_path",
    "name_invalid": "invalid_path",
    "value_invalid": "invalid_path",
    "too_many_links": "invalid_path",
}


def of_the_path(e: ClocheError) -> bool:
    """Whether the call failed for its path. Otherwise the connection or the sandbox is lost, which is not the model's matter."""
    return isinstance(e, (NotFoundError, InvalidError, RefusedError, ConflictError, DeniedError))


def word_of(e: ClocheError) -> str:
    """One of deepagents' four words, or else the server's message."""
    if e.reason in WORDS:
        return WORDS[e.reason]
    if isinstance(e, NotFoundError):
        return "file_not_found"
    if isinstance(e, DeniedError):
        return "permission_denied"
    if "is a directory" in e.message.lower():
        return "is_directory"
    if isinstance(e, InvalidError) or "not a directory" in e.message.lower():
        return "invalid_path"
    return e.message
