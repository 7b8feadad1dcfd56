"""A Jupyter kernel and its client: five TCP connections with both ends in this sandbox."""
from jupyter_client.manager import start_new_kernel

from serve import serve

# Its history is a database of SQLite, which writes to no file whose inode number is another one than before. That of a copy is.
manager, client = start_new_kernel(kernel_name="python3", startup_timeout=120, extra_arguments=["--HistoryManager.hist_file=:memory:"])


def run(code):
    said = []

    def output(message):
        if message["msg_type"] == "stream":
            said.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=60, output_hook=output)
    assert reply["content"]["status"] == "ok", reply
    return "".join(said).strip()


run("x = 0; data = list(range(100000))")


def step(n):
    return run("x += 1; data.append(data[-1] + 1); print(x, sum(data) - sum(range(100000)))")


serve(step)
