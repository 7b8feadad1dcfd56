"""For schemathesis: what a description cannot say, because it depends on the caller, or on what there is on this host."""
import schemathesis

MAKERS = ("createSandbox", "putTemplate", "restoreCheckpoint")


def only_what_there_is(body):
    for key in ("checkpoint", "devices", "gpus", "image", "io_bps", "isolation", "mounts", "start", "template", "warm"):
        body.pop(key, None)
    for key in ("cpus", "disk", "memory", "nofile", "pids"):
        if body.get(key) in (0, "0"):
            del body[key]  # only an admin may lift a limit
    for one in body.get("tmpfs") or []:
        one.pop("size", None)


@schemathesis.hook
def before_call(context, case, kwargs):  # pylint: disable=unused-argument
    body = case.body
    if case.meta is None or not case.meta.generation.mode.is_positive or not isinstance(body, dict):
        return
    name = case.operation.definition.raw.get("operationId")
    if name in MAKERS:
        only_what_there_is(body)
    body.pop("secrets", None)
    if body.get("names"):
        body.pop("count", None)  # at least as many as names
    if name == "createExec":
        for key in ("stdin_open", "user", "cwd"):  # an open stdin needs `background` or Accept: text/event-stream
            body.pop(key, None)
        if "cmd" in body:
            body["cmd"] = ["sleep", "1"]
    for holder in (body, body.get("network")):
        if isinstance(holder, dict) and holder.get("allow"):
            holder["allow"] = ["example.com:8443", "*.example.org"]  # no bits behind a prefix, no more than eight ports
