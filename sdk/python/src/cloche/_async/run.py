"""Code that is run once, in a sandbox of its own."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Dict

from ..errors import InvalidError
from ..executions import RunResult
from .contexts import AsyncCodeStream
from .transport import AsyncTransport, Call

if TYPE_CHECKING:
    from ..options import RunOptions

PATH = "/v1/run"


def run_body(code: str, options: RunOptions) -> Dict[str, Any]:
    if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidError(f"code must be str, not {type(code).__name__}", code="invalid")
    body: Dict[str, Any] = {"code": code, **{k: v for k, v in options.items() if v is not None}}
    files = options.get("files")
    if files is not None:
        body["files"] = {
            path: data if isinstance(data, str) else {"base64": base64.b64encode(data).decode("ascii")} for path, data in files.items()
        }
    return body


async def run_once(transport: AsyncTransport, body: Dict[str, Any]) -> RunResult:
    # How long code may run is the server's clock to say.
    return RunResult.from_wire(await transport.json(Call("POST", PATH, json=body, timeout=0)))


def stream_once(transport: AsyncTransport, body: Dict[str, Any]) -> AsyncCodeStream:
    return AsyncCodeStream(transport, PATH, body, RunResult)
