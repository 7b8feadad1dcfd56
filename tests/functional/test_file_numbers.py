"""A file is told from all others by st_dev and st_ino, exactly, in every language (docs/design/0015-file-numbers.md)."""
import json

from host import run

LOOK = r"""
import json, os, subprocess
seen, wrong = {}, []
for top in "/etc", "/home/user", "/tmp":
    for at, _, names in os.walk(top):
        for e in os.scandir(at):
            st = os.lstat(e.path)
            if not e.is_dir(follow_symlinks=False):
                seen[e.path] = [str(st.st_dev), str(st.st_ino), st.st_nlink]
                if e.inode() != st.st_ino:
                    wrong.append(e.path)
node = ("const fs = require('fs'); const out = {}; for (const p of JSON.parse(fs.readFileSync(0)))"
        "{ const s = fs.lstatSync(p); out[p] = [String(s.dev), String(s.ino), s.nlink]; } console.log(JSON.stringify(out));")
js = None
if os.path.exists("/usr/bin/node"):
    js = json.loads(subprocess.run(["/usr/bin/node", "-e", node], input=json.dumps(list(seen)).encode(), stdout=subprocess.PIPE, check=True).stdout)
before = os.stat("/etc/passwd").st_ino
with open("/etc/passwd", "a") as f:
    f.write("\n")
print(json.dumps([seen, js, wrong, before == os.stat("/etc/passwd").st_ino]))
"""


def test_device_and_inode_number_tell_files_apart():
    script = "cd /tmp; echo a > a; ln a b; echo c > c; exec /usr/bin/python3 -c \"$0\""
    r = run("--user", "root", "--", "sh", "-c", script, LOOK)
    assert r.code == 0, r
    seen, js, wrong, same = json.loads(r.out)
    assert len(seen) > 50 and not wrong
    assert seen["/tmp/a"] == seen["/tmp/b"] and seen["/tmp/a"][2] == 2
    pairs = {(dev, ino) for dev, ino, _ in seen.values()}
    assert len(pairs) == len(seen) - sum(n > 1 for _, _, n in seen.values()) + len({(d, i) for d, i, n in seen.values() if n > 1})
    assert all(int(ino) < 1 << 53 for _, ino in pairs)  # what JavaScript's numbers hold
    assert js in (None, seen)
    assert same  # also once it was written to
