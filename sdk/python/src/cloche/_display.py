"""How results show themselves in notebooks: as text, and as HTML in which all that a sandbox wrote is escaped.

HTML that code in a sandbox made is shown in a frame that runs no scripts, and SVG as an image, which runs none either: a notebook
would otherwise run them with its own rights. Formats that are programs (JavaScript) or may contain HTML (Markdown) are left out.
"""

from __future__ import annotations

import base64
import html
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

if TYPE_CHECKING:
    from .executions import CodeResult, Execution
    from .models import Diff, Result, SandboxInfo

Bundle = Dict[str, Any]
# A cell of a notebook is stored with it: more than this is cut in the middle.
SHOWN = 64 * 1024
DIFF_LINES = 2000


def _cut(text: str) -> str:
    if len(text) <= SHOWN:
        return text
    return f"{text[: SHOWN // 2]}\n[… {len(text) - SHOWN} characters left out …]\n{text[-SHOWN // 2 :]}"


def _pre(text: str, style: str = "") -> str:
    return f'<pre style="margin:0;white-space:pre-wrap;{style}">{html.escape(_cut(text))}</pre>' if text else ""


def result_bundle(r: Result) -> Bundle:
    end = "" if r.ok else f"[{r.verdict.cause}: {r.verdict.detail or ''}, exit code {r.exit_code}]"
    parts = [_cut(x.rstrip("\n")) for x in (r.stdout, r.stderr) if x]
    plain = "\n".join([*parts, end] if end else parts)
    page = _pre(r.stdout) + _pre(r.stderr, "color:#b00020;") + _pre(end, "color:#b00020;font-weight:bold;")
    page += f'<div style="color:#777;font-size:85%">exit code {r.exit_code} · {r.usage.wall_ms} ms</div>'
    return {"text/plain": plain, "text/html": page}


def table(title: str, rows: List[Tuple[str, str]]) -> str:
    body = "".join(f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows)
    return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


def sandbox_bundle(s: SandboxInfo, name: str) -> Bundle:
    rows = [
        ("id", s.id),
        ("state", s.state),
        ("isolation", s.isolation),
        ("image", s.image),
        ("limits", f"{s.cpus} CPUs, {s.memory >> 20} MiB memory, {s.disk >> 20} MiB disk, {s.pids} processes"),
        ("network", str((s.network or {}).get("mode", "none"))),
        ("expires", s.expires_at.isoformat() if s.expires_at else "never"),
    ]
    return {"text/plain": f"<{name} {s.name} {s.state}>", "text/html": table(f"Sandbox {s.name}", rows)}


SIGNS = {"added": ("+", "#1a7f37"), "changed": ("~", "#9a6700"), "removed": ("-", "#b00020")}


def diff_bundle(d: Diff) -> Bundle:
    total = f"{d.added} added, {d.changed} changed, {d.removed} removed"
    plain, page = [total], [f"<div>{total}</div>"]
    for e in d.entries[:DIFF_LINES]:
        sign, colour = SIGNS.get(e.change, ("?", "#777"))
        plain.append(f"{sign} {e.path}")
        page.append(f'<div style="color:{colour};font-family:monospace">{sign} {html.escape(e.path)}</div>')
        if e.text:
            plain.append(_cut(e.text.rstrip("\n")))
            page.append(_pre(e.text, "margin-left:2em;"))
    if d.truncated or len(d.entries) > DIFF_LINES:
        plain.append("…")
        page.append("<div>…</div>")
    return {"text/plain": "\n".join(plain), "text/html": "".join(page)}


# Formats that a notebook shows without running anything in them.
HARMLESS = ("text/plain", "image/png", "image/jpeg", "image/gif", "image/webp", "application/json")
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
ROW, LEAST, MOST = 26, 60, 480


def _frame(page: str) -> str:
    """Nothing in it can say how high it is: that is guessed from its rows, and it can be pulled."""
    rows = sum(page.count(mark) for mark in ("<tr", "<p", "<li", "<br", "<h")) or page.count("\n")
    height = min(MOST, max(LEAST, ROW * (rows + 2)))
    style = f"border:0;width:100%;height:{height}px;resize:vertical;background:#fff"
    return f'<iframe sandbox="" style="{style}" srcdoc="{html.escape(page)}"></iframe>'


def _image(kind: str, coded: str) -> str:
    return f'<img src="data:{kind};base64,{html.escape(coded)}">'


def code_result_bundle(r: CodeResult) -> Bundle:
    bundle = {k: v for k, v in r.mime.items() if k in HARMLESS}
    page, svg = r.html, r.svg
    if page is not None:
        bundle["text/html"] = _frame(page)
    elif svg is not None:
        bundle["text/html"] = _image("image/svg+xml", base64.b64encode(svg.encode("utf-8", "replace")).decode())
    elif "text/plain" not in bundle:
        bundle["text/plain"] = _cut("\n".join(v for v in r.mime.values() if isinstance(v, str))) or "[no text]"
    return bundle


def _result_html(r: CodeResult) -> str:
    bundle = code_result_bundle(r)
    page = bundle.get("text/html")
    if isinstance(page, str):
        return page
    for kind in IMAGES:
        coded = bundle.get(kind)
        if isinstance(coded, str):
            return _image(kind, "".join(coded.split()))
    return _pre(str(bundle.get("text/plain", "")))


def execution_bundle(x: Execution) -> Bundle:
    error = x.error.traceback or f"{x.error.name}: {x.error.value}" if x.error else ""
    end = "" if x.verdict.cause in ("ok", "error") else f"[{x.verdict.cause}: {x.verdict.detail}]"
    plain = [_cut(t.rstrip("\n")) for t in (x.stdout, x.stderr, *(r.text or "" for r in x.results), error, end) if t]
    page = _pre(x.stdout) + _pre(x.stderr, "color:#b00020;") + "".join(_result_html(r) for r in x.results)
    page += _pre(error, "color:#b00020;") + _pre(end, "color:#b00020;font-weight:bold;")
    return {"text/plain": "\n".join(plain), "text/html": page or "<div></div>"}
