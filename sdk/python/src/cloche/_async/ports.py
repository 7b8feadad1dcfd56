"""Servers that listen in a sandbox, reached through the daemon."""

from __future__ import annotations

from typing import List, Mapping, Optional

import httpx

from .._wire import models
from ..errors import UnsupportedError
from ..models import Port
from ..options import Source
from .transport import AsyncTransport, Call


class AsyncPorts:
    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._path = f"{sandbox}/ports"

    async def list(self) -> List[Port]:
        """Those that are public or have a token of their own."""
        return models(Port, (await self._transport.json(Call("GET", self._path)))["ports"])

    async def get(self, port: int) -> Port:
        return Port.from_wire(await self._transport.json(Call("GET", f"{self._path}/{port:d}")))

    async def set(self, port: int, *, public: Optional[bool] = None, token: Optional[bool] = None) -> Port:
        """Says who may use it. With `token=True` the answer has a new token, this once; an earlier one becomes invalid."""
        body = {k: v for k, v in (("public", public), ("token", token)) if v is not None}
        # A repetition would make another token.
        call = Call("PUT", f"{self._path}/{port:d}", json=body, repeatable=token is not True)
        return Port.from_wire(await self._transport.json(call))

    async def remove(self, port: int) -> None:
        """Private again: only tokens of the API lead to it."""
        await self._transport.json(Call("DELETE", f"{self._path}/{port:d}", gone_is_done=True))

    def url(self, port: int, path: str = "/") -> str:
        """Where it is, for those who have a token (or for all, if it is public)."""
        if self._transport.uds is not None:
            raise UnsupportedError(
                "a daemon behind a unix socket has no address for others",
                code="unsupported",
                status=501,
                remedy="use its TCP address, or `cloche port-forward`",
            )
        return self._url(port, path)

    def _url(self, port: int, path: str) -> str:
        return f"{self._transport.base_text}{self._path}/{port:d}{path if path.startswith('/') else '/' + path}"

    async def fetch(
        self,
        port: int,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Optional[Mapping[str, str]] = None,
        content: Optional[Source] = None,
        timeout: Optional[float] = None,
    ) -> httpx.Response:
        """An answer of a server inside, whatever its status. Our token is sent along.

        An `authorization` for the server itself takes its place: then the port must be public, or its token be in
        `x-cloche-port-token`.
        """
        return await self._transport.fetch(method, self._url(port, path), headers, content, timeout)
