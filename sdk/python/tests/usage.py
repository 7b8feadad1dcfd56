"""A typed program that uses the package: checked by mypy --strict and pyright, never run."""
from __future__ import annotations

from typing import Any, List, Optional

from cloche import (
    AsyncCloche,
    AsyncSandbox,
    Checkpoint,
    Cloche,
    ClocheError,
    CodeResult,
    Execution,
    NotFoundError,
    OutputChunk,
    Result,
    Sandbox,
)


def sync(client: Cloche) -> Optional[str]:
    with client.sandboxes.create(memory="256M", network={"allow": ["a.test"], "budget": {"bytes_out": "1M"}}) as sandbox:
        result: Result = sandbox.exec(["true"], timeout=3, env={"A": "b"})
        code: int = result.exit_code
        with sandbox.start("cat", stdin=True) as exec:
            exec.stdin.write("x")
            chunks: List[OutputChunk] = list(exec)
        execution: Execution = sandbox.run_code("1", language="js", timeout="1s", on_stdout=print)
        with sandbox.contexts.create("python", restrict={"imports": ["os"]}) as context:
            with context.stream("1") as events:
                shown: List[Any] = [e.png for e in events if isinstance(e, CodeResult)]
            print(execution.text, shown, events.execution, context.complete("a").matches)
        point: Checkpoint = sandbox.checkpoint("c", memory="auto")
        forks: List[Sandbox] = sandbox.fork(2)
        names: List[str] = [s.name for s in client.sandboxes.list(state="running")]
        data: bytes = sandbox.files.read(b"a")
        for event in sandbox.events():
            print(event.type, code, chunks, point.id, forks, names, data)
    try:
        client.secrets.set("K", b"value")
        client.sandboxes.create(secrets=[{"name": "K", "as": "env"}])
        image = client.images.build("FROM scratch", context=".", tags=("a:1",), network={"allow": ["a.test"]}, on_event=lambda e: print(e.state))
        labels: Optional[str] = client.images.pull("b", on_progress=lambda p: print(p.ready + p.layers)).config.labels.get(image.name)
        client.sandboxes.create(image=labels)
        client.templates.set("t", warm={"python": "import json"}, start={"shell": "true"})
    except NotFoundError as e:
        return e.remedy
    except ClocheError as e:
        return e.request_id
    return None


async def not_sync(client: AsyncCloche) -> int:
    async with await client.sandboxes.create() as sandbox:
        other: AsyncSandbox = sandbox
        execution: Execution = await other.run_code("1", env={"A": None})
        async with await other.contexts.create() as context:
            async for event in context.stream("1"):
                print(event, execution.result)
        async with await other.start(["sort"], stdin=True) as exec:
            result: Result = await exec.communicate(b"x")
        async for chunk in await sandbox.pty(rows=1, cols=2):
            print(chunk.text)
        async with await sandbox.files.stream("a") as pieces:
            total = sum([len(piece) async for piece in pieces])
        return total + result.exit_code
