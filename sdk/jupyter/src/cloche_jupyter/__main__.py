"""`install` makes a kernel known to Jupyter; everything else is Jupyter's own call to start it."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
from typing import Any, Dict

import cloche
from ipykernel.kernelapp import IPKernelApp
from jupyter_client.kernelspec import KernelSpecManager

from .kernel import LANGUAGES, ClocheKernel


def options(text: str) -> Dict[str, Any]:
    """The value of --options."""
    try:
        value = json.loads(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"not JSON: {e}; write it as '{{\"memory\": \"1G\"}}'") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("must be a JSON object, as '{\"memory\": \"1G\"}'")
    return value


def install() -> None:
    p = argparse.ArgumentParser(prog="python -m cloche_jupyter install")
    p.add_argument("--language", default="python", choices=sorted(LANGUAGES))
    p.add_argument("--name", help="of the kernel; cloche-LANGUAGE unless given")
    p.add_argument("--options", type=options, default={}, help="of the sandbox, as JSON: those of a create")
    p.add_argument("--sandbox", help="a sandbox that exists, instead of one of its own")
    p.add_argument("--prefix", help="installs below this folder, instead of the user's")
    a = p.parse_args(sys.argv[2:])
    env = {"CLOCHE_KERNEL_LANGUAGE": a.language, "CLOCHE_KERNEL_OPTIONS": json.dumps(a.options)}
    if a.sandbox:
        env["CLOCHE_KERNEL_SANDBOX"] = a.sandbox
    spec = {
        "argv": [sys.executable, "-m", "cloche_jupyter", "-f", "{connection_file}"],
        "display_name": f"{a.language.capitalize()} (Cloche)",
        "language": LANGUAGES[a.language]["name"],
        "env": env,
    }
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "kernel.json").write_text(json.dumps(spec, indent=1), encoding="utf-8")
        name = a.name or f"cloche-{a.language}"
        print(KernelSpecManager().install_kernel_spec(folder, name, user=not a.prefix, prefix=a.prefix))


if sys.argv[1:2] == ["install"]:
    install()
else:
    try:
        IPKernelApp.launch_instance(kernel_class=ClocheKernel)
    except cloche.ClocheError as e:  # no daemon, or options that it refuses
        print(f"cloche_jupyter: cannot start the kernel: {e}", file=sys.__stderr__)  # sys.stderr is the notebook's by now
        sys.exit(1)
