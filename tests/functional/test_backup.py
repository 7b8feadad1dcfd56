"""docs/backup.md: its own lines copy the data folder and put it back, and all that it promises is there again."""
import re
import shutil
import subprocess

import host
from daemon import Daemon

PAGE = (host.ROOT / "docs/backup.md").read_text()


def line(word, data, file):
    """The page's tar line with this option, for our paths."""
    found, = [x for x in re.findall(r"^# (tar .*)$", PAGE, re.M) if f" {word} " in x]
    return found.replace("/var/lib/cloche", str(data)).replace("/backup/cloche.tar", str(file))


def test_a_backup_brings_back_what_the_page_says(tmp_path):
    with Daemon() as d:
        assert d.post("/v1/tenants", {"id": "other"}).status == 201
        theirs = d.post("/v1/tokens", {"tenant": "other", "scope": "sandbox"}).json["token"]
        assert d.put("/v1/secrets/word", {"value": "a-long-secret-word"}).status in (200, 201)
        asleep = d.create(name="asleep")["id"]
        x = d.post(f"/v1/sandboxes/{asleep}/execs", {"shell": "echo one > f; exec sleep 999", "background": True, "timeout": 0}).json["id"]
        host.wait_for(lambda: d.exec(asleep, "cat", "f")["stdout"] == "one\n", 30)
        checkpoint = d.post(f"/v1/sandboxes/{asleep}/checkpoints", {"name": "kept"}).json["id"]
        disk = d.create(name="disk", storage="disk")["id"]
        assert d.exec(disk, "sh", "-c", "echo two > f; ln f g; chmod 600 f")["exit_code"] == 0
        assert d.post(f"/v1/sandboxes/{asleep}/hibernate").status == 200 and d.post(f"/v1/sandboxes/{disk}/stop").status == 200
        token = d.token
        d.stop()
        subprocess.run(line("-cf", d.data, tmp_path / "b.tar"), shell=True, check=True)
        mode = d.data.stat().st_mode & 0o777
        for f in d.data.iterdir():
            shutil.rmtree(f) if f.is_dir() and not f.is_symlink() else f.unlink()
        d.data.chmod(mode)
        subprocess.run(line("-xpf", d.data, tmp_path / "b.tar"), shell=True, check=True)
        d.start()
        d.token = token
        assert d.get(f"/v1/sandboxes/{asleep}").json["state"] == "hibernated" and d.get(f"/v1/sandboxes/{disk}").json["state"] == "stopped"
        assert d.exec(asleep, "cat", "f")["stdout"] == "one\n"
        assert d.get(f"/v1/sandboxes/{asleep}/execs/{x}").json["state"] == "running"
        assert d.post(f"/v1/sandboxes/{disk}/start").status == 200
        assert d.exec(disk, "sh", "-c", "cat g; stat -c '%h %a' f")["stdout"] == "two\n2 600\n"
        new, = d.post(f"/v1/checkpoints/{checkpoint}/restore").json["sandboxes"]
        assert d.exec(new["id"], "cat", "f")["stdout"] == "one\n"
        assert d.get("/v1/whoami", token=theirs).json["tenant"] == "other"
        with_it = d.create(secrets=[{"name": "word", "as": "file"}])["id"]
        assert d.exec(with_it, "wc", "-c", "/run/secrets/word")["stdout"].split()[0] == "18"
        assert d.get("/v1/audit/verify").json["ok"] is True
        for box in (asleep, disk, new["id"], with_it):
            d.delete(f"/v1/sandboxes/{box}")
