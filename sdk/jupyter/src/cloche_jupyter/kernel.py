"""The kernel: Jupyter's messages on one side, a context of a sandbox on the other."""

from __future__ import annotations

import fnmatch
import json
import os
import signal
import threading
from typing import Any, Dict, Optional

import cloche
from ipykernel.kernelbase import Kernel

LANGUAGES: Dict[str, Dict[str, str]] = {
    "python": {"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py"},
    "javascript": {"name": "javascript", "version": "ES2022", "mimetype": "text/javascript", "file_extension": ".js"},
    "typescript": {"name": "typescript", "version": "5", "mimetype": "application/typescript", "file_extension": ".ts"},
    "shell": {"name": "bash", "version": "5", "mimetype": "text/x-sh", "file_extension": ".sh"},
    "r": {"name": "R", "version": "4", "mimetype": "text/x-r-source", "file_extension": ".r"},
}
HISTORY_MAX = 1000  # what a context keeps


def language() -> str:
    return os.environ.get("CLOCHE_KERNEL_LANGUAGE", "python")


class ClocheKernel(Kernel):  # type: ignore[misc]
    implementation = "cloche"
    implementation_version = "0.1.0"
    banner = "Code runs in a Cloche sandbox."
    help_links: Any = []

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.client = cloche.Cloche()
        known = os.environ.get("CLOCHE_KERNEL_SANDBOX")
        self.own = not known
        if known:
            self.sandbox = self.client.sandboxes.get(known)
        else:
            self.sandbox = self.client.sandboxes.create(**json.loads(os.environ.get("CLOCHE_KERNEL_OPTIONS", "{}")))
        self.context = self.sandbox.contexts.create(language())

    @property
    def language_info(self) -> Dict[str, str]:
        return LANGUAGES[language()]

    def _send(self, kind: str, content: Dict[str, Any]) -> None:
        self.send_response(self.iopub_socket, kind, content)

    def _show(self, event: Any) -> None:
        """One event of the context, as a message."""
        if isinstance(event, cloche.CodeOutput):
            self._send("stream", {"name": event.stream, "text": event.text})
        elif isinstance(event, cloche.CodeCleared):
            self._send("clear_output", {"wait": event.wait})
        elif isinstance(event, cloche.CodeResult):
            content: Dict[str, Any] = {"data": event.mime, "metadata": event.metadata or {}}
            if event.is_main:
                self._send("execute_result", {**content, "execution_count": self.execution_count})
                return
            if event.display_id is not None:
                content["transient"] = {"display_id": event.display_id}
            self._send("update_display_data" if event.update else "display_data", content)

    def _run(self, code: str, silent: bool) -> cloche.Execution:
        """Runs it. SIGINT, with which Jupyter interrupts, goes to the code: its end comes as of any other."""

        def interrupt(*_: Any) -> None:
            threading.Thread(target=self.context.interrupt, daemon=True).start()

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            with self.context.stream(code, timeout=0) as events:
                for event in events:
                    if not silent:
                        self._show(event)
        finally:
            signal.signal(signal.SIGINT, before)
        assert events.execution is not None
        return events.execution

    def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: Optional[Dict[str, str]] = None,
        allow_stdin: bool = False,
        **_: Any,
    ) -> Dict[str, Any]:
        try:
            done = self._run(code, silent)
        except cloche.ClocheError as e:
            error = {"ename": type(e).__name__, "evalue": str(e), "traceback": [str(e)]}
        else:
            if done.error is not None:
                error = {"ename": done.error.name, "evalue": done.error.value, "traceback": done.error.traceback.splitlines()}
            elif done.verdict.cause != "ok":
                error = {"ename": "ContextEnded", "evalue": done.verdict.detail, "traceback": [done.verdict.detail]}
            else:
                return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}
        if not silent:
            self._send("error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}

    def do_complete(self, code: str, cursor_pos: int) -> Dict[str, Any]:
        found = self.context.complete(code, cursor_pos)
        return {"status": "ok", "matches": found.matches, "cursor_start": found.start, "cursor_end": found.end, "metadata": {}}

    def do_is_complete(self, code: str) -> Dict[str, Any]:
        found = self.context.is_complete(code)
        return {"status": found.status, **({"indent": found.indent or ""} if found.status == "incomplete" else {})}

    def do_inspect(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()) -> Dict[str, Any]:
        found = self.context.inspect(code, cursor_pos, detail=detail_level)
        return {"status": "ok", "found": found.found, "data": found.mime, "metadata": {}}

    def do_history(
        self,
        hist_access_type: str,
        output: bool,
        raw: bool,
        session: Any = None,
        start: Any = None,
        stop: Any = None,
        n: Any = None,
        pattern: Any = None,
        unique: bool = False,
    ) -> Dict[str, Any]:
        """Of this context, which is session 0: it has no others."""
        cells = self.context.history(HISTORY_MAX)
        if hist_access_type == "range":
            cells = [c for c in cells if (start or 0) <= c.execution_count and (stop is None or c.execution_count < stop)]
        elif hist_access_type == "search":
            cells = [c for c in cells if fnmatch.fnmatchcase(c.code, pattern or "*")]
            if unique:
                cells = list({c.code: c for c in cells}.values())
        if n is not None and hist_access_type != "range":
            cells = cells[-n:] if n > 0 else []
        return {"status": "ok", "history": [(0, c.execution_count, (c.code, None) if output else c.code) for c in cells]}

    def do_shutdown(self, restart: bool) -> Dict[str, Any]:
        try:
            if self.own:
                self.sandbox.delete()
            else:
                self.context.delete()
        except cloche.ClocheError as e:
            self.log.warning("%s", e)
        self.client.close()
        return {"status": "ok", "restart": restart}
