"""Tokens, tenants and the audit log: calls of an administrator."""

from __future__ import annotations

from typing import Any, AsyncIterator, List, Optional

from .._wire import listed, models, segment
from ..models import AuditRecord, AuditVerdict, Tenant, Token
from ..options import Duration, Quotas, Rate, Scope
from .sandbox import given
from .transport import AsyncTransport, Call


class AsyncTokens:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Token]:
        return models(Token, (await self._transport.json(Call("GET", "/v1/tokens")))["tokens"])

    async def get(self, token_id: str) -> Token:
        return Token.from_wire(await self._transport.json(Call("GET", f"/v1/tokens/{segment(token_id)}")))

    async def create(
        self,
        *,
        tenant: Optional[str] = None,
        name: Optional[str] = None,
        scope: Scope = "sandbox",
        expires_in: Optional[Duration] = None,
        rate: Optional[Rate] = None,
    ) -> Token:
        """Only this answer has the token itself."""
        body = given(tenant=tenant, name=name, scope=scope, expires_in=expires_in, rate=rate)
        return Token.from_wire(await self._transport.json(Call("POST", "/v1/tokens", json=body)))

    async def rotate(self, token_id: str, *, grace: Optional[Duration] = None) -> Token:
        """A new token; the old one stays valid for `grace` seconds."""
        call = Call("POST", f"/v1/tokens/{segment(token_id)}/rotate", json=given(grace=grace))
        return Token.from_wire(await self._transport.json(call))

    async def revoke(self, token_id: str) -> None:
        await self._transport.json(Call("DELETE", f"/v1/tokens/{segment(token_id)}", gone_is_done=True))


class AsyncTenants:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Tenant]:
        return models(Tenant, (await self._transport.json(Call("GET", "/v1/tenants")))["tenants"])

    async def get(self, tenant_id: str) -> Tenant:
        return Tenant.from_wire(await self._transport.json(Call("GET", f"/v1/tenants/{segment(tenant_id)}")))

    async def create(self, tenant_id: str, *, quotas: Optional[Quotas] = None, rate: Optional[Rate] = None) -> Tenant:
        body = given(id=tenant_id, quotas=quotas, rate=rate)
        return Tenant.from_wire(await self._transport.json(Call("POST", "/v1/tenants", json=body)))

    async def update(self, tenant_id: str, *, quotas: Optional[Quotas] = None, rate: Optional[Rate] = None) -> Tenant:
        """Changes only what is given."""
        call = Call("PATCH", f"/v1/tenants/{segment(tenant_id)}", json=given(quotas=quotas, rate=rate), repeatable=True)
        return Tenant.from_wire(await self._transport.json(call))

    async def delete(self, tenant_id: str) -> None:
        await self._transport.json(Call("DELETE", f"/v1/tenants/{segment(tenant_id)}", gone_is_done=True))


class AsyncAudit:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        after: Optional[int] = None,
        sandbox: Optional[str] = None,
        kind: Optional[str] = None,
        tenant: Optional[str] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[AuditRecord]:
        """Records in order, page by page as the loop continues."""
        while True:
            query = {"after": after, "sandbox": sandbox, "kind": kind, "tenant": tenant, "limit": page_size}
            page: Any = await self._transport.json(Call("GET", "/v1/audit", query=query))
            for wire in listed(page["records"], "records"):
                yield AuditRecord.from_wire(wire)
            following = page.get("next")
            if following is None or following == after:
                return
            after = following

    async def verify(self) -> AuditVerdict:
        """Whether the log is whole; it may take a while."""
        return AuditVerdict.from_wire(await self._transport.json(Call("GET", "/v1/audit/verify", timeout=0)))
