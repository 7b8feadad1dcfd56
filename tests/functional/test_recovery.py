"""A database that is missing, empty, damaged, older or another folder's: nothing is touched, and all of it comes back."""
import os
import shutil
import subprocess

import pytest

import host
from daemon import Daemon


class Kept:
    """A daemon with running sandboxes, one that sleeps, and checkpoints: what must not be lost."""

    def __init__(self, d):
        self.d = d
        assert d.post("/v1/tenants", {"id": "other"}).status == 201
        self.token = d.post("/v1/tokens", {"tenant": "other", "scope": "sandbox"}).json["token"]
        assert d.put("/v1/secrets/word", {"value": "a-long-secret-word"}).status in (200, 201)
        self.box = d.create(name="first", env={"WORD": "kept"})["id"]
        assert d.exec(self.box, "sh", "-c", "echo one > f")["exit_code"] == 0
        self.checkpoint = self.make(self.box, "named")
        assert d.exec(self.box, "sh", "-c", "echo two > f")["exit_code"] == 0
        r = d.post("/v1/sandboxes", {"name": "theirs"}, token=self.token)
        self.theirs = r.json["id"]
        self.asleep = d.create(name="asleep")["id"]
        assert d.exec(self.asleep, "sh", "-c", "echo three > f")["exit_code"] == 0
        assert d.post(f"/v1/sandboxes/{self.asleep}/hibernate", {}).status == 200
        self.sleeps = "hibernated"
        r = d.post(f"/v1/sandboxes/{self.box}/execs", {"cmd": ["sh", "-c", "echo out; exec sleep 1000"], "background": True})
        self.exec = r.json["id"]

    def make(self, box, name):
        r = self.d.post(f"/v1/sandboxes/{box}/checkpoints", {"name": name})
        assert r.status == 201, r
        return r.json["id"]

    def check(self):
        d = self.d
        found = {b["id"]: (b["name"], b["state"]) for b in d.get("/v1/sandboxes?tenant=*&limit=100").json["sandboxes"]}
        assert found[self.box] == ("first", "running") and found[self.asleep] == ("asleep", self.sleeps), found
        assert found[self.theirs] == ("theirs", "running"), found
        assert d.exec(self.box, "sh", "-c", "cat f; echo $WORD")["stdout"] == "two\nkept\n"
        assert d.exec(self.asleep, "cat", "f")["stdout"] == "three\n"
        self.sleeps = "running"  # from now on
        assert d.get(f"/v1/sandboxes/{self.theirs}", token=self.token).status == 200
        assert d.get(f"/v1/sandboxes/{self.box}/execs/{self.exec}").json["state"] == "running"
        assert d.get(f"/v1/sandboxes/{self.box}/execs/{self.exec}/output?stream=stdout").body == b"out\n"
        listed = {c["id"]: c["name"] for c in d.get("/v1/checkpoints").json["checkpoints"]}
        assert listed[self.checkpoint] == "named", listed
        new, = d.post(f"/v1/checkpoints/{self.checkpoint}/restore").json["sandboxes"]
        assert d.exec(new["id"], "cat", "f")["stdout"] == "one\n"
        assert [s["name"] for s in d.get("/v1/secrets").json["secrets"]] == ["word"]


def refused(d):
    """It does not start, and says in one line what is wrong and what to do. Nothing has changed by that."""
    before = sorted(p.name for p in (d.data / "layers").iterdir()), sorted(p.name for p in (d.data / "notes").iterdir())
    p = subprocess.run([str(host.CLOCHE), "serve", "--data", str(d.data), "--listen", "127.0.0.1:0"], capture_output=True, timeout=60,
                       check=False)
    lines = p.stderr.decode().splitlines()
    assert p.returncode == 125 and len(lines) == 1 and "--recover" in lines[0], lines
    assert before == (sorted(p.name for p in (d.data / "layers").iterdir()), sorted(p.name for p in (d.data / "notes").iterdir()))
    return lines[0]


def recovered(d):
    d.args.append("--recover")
    d.start()
    d.args.remove("--recover")


def quarantine(d):
    return sorted((d.data / "quarantine").iterdir()) if (d.data / "quarantine").is_dir() else []


def missing(d):
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (d.data / name).unlink(missing_ok=True)


def all_missing(d):
    for path in d.data.glob("state*"):
        path.unlink()


def settle(d):
    """All of the log is in the file."""
    subprocess.run(["sqlite3", str(d.data / "state.db"), "PRAGMA wal_checkpoint(TRUNCATE)"], check=True, capture_output=True)


def zeroed(d):
    settle(d)
    size = (d.data / "state.db").stat().st_size
    with open(d.data / "state.db", "r+b") as f:
        f.write(bytes(size))


def emptied(d):
    for name in ("state.db", "state.db-wal"):
        os.truncate(d.data / name, 0)


def cut_log(d):
    size = (d.data / "state.db-wal").stat().st_size
    os.truncate(d.data / "state.db-wal", size * 2 // 3)


def zeroed_log(d):
    size = (d.data / "state.db-wal").stat().st_size
    with open(d.data / "state.db-wal", "r+b") as f:
        f.write(bytes(size))


def damaged(d):
    settle(d)
    with open(d.data / "state.db", "r+b") as f:
        f.seek(4096)
        f.write(os.urandom(8192))


@pytest.mark.parametrize("what", [missing, all_missing, zeroed, emptied, cut_log, zeroed_log, damaged], ids=lambda f: f.__name__)
def test_nothing_is_lost_with_the_database(what):
    with Daemon() as d:
        kept = Kept(d)
        d.stop()
        what(d)
        line = refused(d)
        assert "running sandboxes" in line and str(d.data) in line
        recovered(d)
        kept.check()
        assert bool(quarantine(d)) == (what not in (missing, all_missing, emptied)), quarantine(d)
        d.restart()
        kept.check()


def test_the_database_of_another_folder_is_noticed():
    with Daemon() as other, Daemon() as d:
        other.create(name="foreign")
        kept = Kept(d)
        other.stop()
        d.stop()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(other.data / name, d.data / name)
        assert "another data folder" in refused(d)
        recovered(d)
        kept.check()
        assert "foreign" not in {b["name"] for b in d.get("/v1/sandboxes").json["sandboxes"]}
        assert {p.name for p in quarantine(d)[0].iterdir()} >= {"state.db", "state.db-wal"}
        assert on_quarantine(d, "ls").stdout.split()[:2] == [quarantine(d)[0].name.encode(), b"database"]
        other.start()


def test_an_older_copy_is_noticed(tmp_path):
    with Daemon() as d:
        box = d.create(name="early")["id"]
        d.stop()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(d.data / name, tmp_path / name)
        d.start()
        assert d.delete(f"/v1/sandboxes/{box}").status == 204
        kept = Kept(d)
        d.stop()
        for name in ("state.db", "state.db-wal"):
            shutil.copy(tmp_path / name, d.data / name)
        assert "older" in refused(d)
        recovered(d)
        kept.check()
        assert box not in {b["id"] for b in d.get("/v1/sandboxes").json["sandboxes"]}


def test_without_notes_checkpoints_come_from_their_layers():
    """Their names are lost, and running sandboxes are left alone; nothing is removed."""
    with Daemon() as d:
        box = d.create()["id"]
        assert d.exec(box, "sh", "-c", "echo one > f")["exit_code"] == 0
        first = d.post(f"/v1/sandboxes/{box}/checkpoints", {"name": "a"}).json["id"]
        new, = d.post(f"/v1/checkpoints/{first}/restore").json["sandboxes"]
        assert d.exec(new["id"], "sh", "-c", "echo two > f")["exit_code"] == 0
        second = d.post(f"/v1/sandboxes/{new['id']}/checkpoints", {"name": "b"}).json["id"]
        assert d.delete(f"/v1/sandboxes/{new['id']}").status == 204
        d.stop()
        all_missing(d)
        shutil.rmtree(d.data / "notes")
        (d.data / "notes").mkdir()
        os.chown(d.data / "notes", d.data.stat().st_uid, d.data.stat().st_gid)
        refused(d)
        recovered(d)
        d.restart()
        listed = {c["id"]: c["name"] for c in d.get("/v1/checkpoints").json["checkpoints"]}
        assert set(listed) == {first, second} and all(n.startswith("recovered-") for n in listed.values()), listed
        for c, text in ((first, "one\n"), (second, "two\n")):
            again, = d.post(f"/v1/checkpoints/{c}/restore").json["sandboxes"]
            assert d.exec(again["id"], "cat", "f")["stdout"] == text
        kept, = (p for p in (d.data / "notes").iterdir() if p.name.startswith("kept-"))
        d.stop()
        kept.unlink()  # from now on it is a leftover as any
        d.start()


def on_quarantine(d, *args):
    return subprocess.run([str(host.CLOCHE), "quarantine", "--data", str(d.data), *args], capture_output=True, timeout=60, check=False)


def test_a_layer_that_nobody_knows_is_put_aside():
    """What is made and deleted as ever is not: only what no row names, and nothing says that it may go."""
    with Daemon() as d:
        box = d.create()["id"]
        assert d.exec(box, "sh", "-c", "echo one > f")["exit_code"] == 0
        known, gone = (d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"] for _ in range(2))
        assert d.delete(f"/v1/checkpoints/{gone}").status == 204
        host.wait_for(lambda: d.layers() == {known}, 30, "the end of what was deleted")
        d.stop()
        subprocess.run(["sqlite3", str(d.data / "state.db"), "DELETE FROM checkpoints"], check=True, capture_output=True)
        d.start()
        aside = d.data / "layers/quarantine" / known
        host.wait_for(aside.exists, 60, "the quarantine")
        assert (aside / "manifest").is_file()
        listed = on_quarantine(d, "ls").stdout.decode()
        assert listed.split()[:2] == [known, "layer"] and "image host" in listed, listed
        shown = on_quarantine(d, "show", known)
        assert shown.returncode == 0 and str(aside).encode() in shown.stdout and b"manifest" in shown.stdout, shown
        assert on_quarantine(d, "rm", known).returncode == 0 and not aside.exists()
        p = on_quarantine(d, "rm", known)
        assert p.returncode == 1 and b"is not in the quarantine" in p.stderr
        assert on_quarantine(d, "ls").stdout == b""


def test_a_layer_that_is_finished_after_its_daemon_died_goes_away():
    """The warden finishes the request; the next daemon looks at the sandboxes before that."""
    with Daemon() as d:
        box = d.create()["id"]
        late = d.post(f"/v1/sandboxes/{box}/checkpoints", {}).json["id"]
        note, layer, hidden = d.data / "notes" / f"loose-{late}", d.data / "layers" / late, d.data / "hidden"
        d.stop()
        subprocess.run(["sqlite3", str(d.data / "state.db"), "DELETE FROM checkpoints"], check=True, capture_output=True)
        layer.rename(hidden)
        note.touch()
        d.start()
        for _ in range(2):  # a layer goes by a look around that is a later one than the first
            assert d.delete(f"/v1/checkpoints/{d.post(f'/v1/sandboxes/{box}/checkpoints', {}).json['id']}").status == 204
            host.wait_for(lambda: not d.layers(), 60, "the end of what was deleted")
        assert note.exists()
        d.stop()
        hidden.rename(layer)
        d.start()
        host.wait_for(lambda: not d.layers(), 60, "the end of the layer")


def test_a_recovery_that_was_interrupted_keeps_a_database_and_its_log_together():
    with Daemon() as d:
        kept = Kept(d)
        d.stop()
        cut_log(d)
        folder = d.data / "quarantine" / "unfinished"
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700)
        (d.data / "state.db-wal").rename(folder / "state.db-wal")
        assert "interrupted" in refused(d)
        recovered(d)
        kept.check()
        moved, = quarantine(d)
        assert moved != folder and {"state.db", "state.db-wal"} <= {p.name for p in moved.iterdir()}


def test_a_disk_that_nobody_knows_is_put_aside():
    """As with layers: the disk of a deleted sandbox is removed, even if the daemon was down when it was deleted."""
    with Daemon() as d:
        boxes = [d.create(storage="disk", disk="8M")["id"] for _ in range(2)]
        notes = d.data / "notes"
        host.wait_for(lambda: not list(notes.glob("loose-disk-*")), 60, "what says that they are made")
        known = {p.name for p in (d.data / "disks").iterdir()}
        assert d.delete(f"/v1/sandboxes/{boxes[0]}").status == 204
        host.wait_for(lambda: len(list((d.data / "disks").iterdir())) == 1, 60, "the end of what was deleted")
        left, = (p.name for p in (d.data / "disks").iterdir())
        assert left in known
        host.wait_for(lambda: not list(notes.glob("loose-disk-*")), 60, "the end of what says so")
        assert d.post(f"/v1/sandboxes/{boxes[1]}/stop").status == 200
        d.stop()
        subprocess.run(["sqlite3", str(d.data / "state.db"), "DELETE FROM boxes"], check=True, capture_output=True)
        d.start()
        aside = d.data / "disks/quarantine" / left
        host.wait_for(aside.exists, 60, "the quarantine")
        listed = on_quarantine(d, "ls").stdout.decode()
        assert listed.split()[:2] == [left, "disk"], listed
        assert str(aside).encode() in on_quarantine(d, "show", left).stdout
        assert on_quarantine(d, "rm", left).returncode == 0 and not aside.exists()
        assert on_quarantine(d, "ls").stdout == b""


def test_a_good_database_is_not_rebuilt_and_a_new_folder_is_one():
    with Daemon(None, "--recover") as d:
        kept = Kept(d)
        d.restart()
        kept.check()
        assert not quarantine(d)
        assert any("nothing to do" in line for line in d.log)


def test_sandboxes_outlive_a_database_that_goes_while_it_is_served():
    """The API process that comes next finds none: the daemon ends, sandboxes do not."""
    with Daemon() as d:
        kept = Kept(d)
        all_missing(d)
        d.kill9("api")
        assert d.process.wait(60) == 125
        refused(d)
        recovered(d)
        kept.check()
