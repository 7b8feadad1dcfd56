"""A fork's changes brought back into the sandbox it came from."""
import time

from api import as_tenant, d, error, events, nothing_is_left_behind, parallel  # noqa: F401
from test_checkpoints import checkpoint, clean, restore, sh  # noqa: F401
from test_diff import by_path, diff


def fork(d, b, n=1):
    r = d.post(f"/v1/sandboxes/{b['id']}/fork", {"count": n, "memory": False})
    assert r.status == 201, r
    return r.json["sandboxes"]


def promote(d, into, frm, **fields):
    return d.post(f"/v1/sandboxes/{into['id']}/promote", {"from": frm["id"], **fields})


def test_what_a_fork_did_is_brought_back(d, clean):
    b = d.create(user="root", workdir="/w", disk="64M")
    sh(d, b, "echo 1 > a; echo 1 > b; echo 1 > keep; mkdir -p gone/deep; echo x > gone/deep/x; echo f > turns; mkdir folder; echo 1 > folder/f; mkdir named; python3 -c \"import os; os.setxattr('named','user.old',b'1')\"; echo s > sock")
    f, other = fork(d, b, 2)
    sh(d, f, r"""echo 2 > a; rm b; rm -r gone; rm turns; mkdir turns; echo in > turns/in; rm -r folder; echo file > folder; mkdir -p new/er; echo n > new/er/n; ln new/er/n hard
                 ln -s a link; chmod 750 keep; chown 5:6 keep; mkfifo p; truncate -s 100M sparse; printf x | dd of=sparse bs=1 seek=1M conv=notrunc 2>&-; python3 -c "import os; os.setxattr('a','user.k',b'v')"
                 python3 -c "import os, socket; os.removexattr('named','user.old'); os.remove('sock'); socket.socket(socket.AF_UNIX).bind('sock')"
                 rm /etc/hostname; touch -d '2003-01-01' new""")
    sh(d, b, "echo own > own; echo also > /etc/also")  # the parent goes on meanwhile
    r = promote(d, b, f)
    assert r.status == 200 and r.headers["X-Cloche-Audit"], r
    assert r.json["conflicts"] == [] and r.json["added"] >= 7 and r.json["changed"] >= 3 and r.json["removed"] >= 4
    assert sh(d, b, "cat a turns/in folder new/er/n hard link own; stat -c %a:%u:%g keep; test -p p && echo p; ls b gone 2>&1 | grep -c 'No such'; test -e /etc/hostname || echo none") == \
        "2\nin\nfile\nn\nn\n2\nown\n750:5:6\np\n2\nnone"
    assert sh(d, b, "stat -c %i new/er/n hard | uniq | wc -l; du -k sparse | cut -f1; stat -c %s sparse; date -r new +%Y; python3 -c \"import os; print(os.getxattr('a','user.k'))\"") == \
        "1\n4\n104857600\n2003\nb'v'"
    left = by_path(diff(d, b, **{"from": f"sandbox:{f['id']}"}))
    assert set(left) == {"/w/own", "/etc/also", "/w/sock"} and left["/w/sock"]["change"] == "removed", left  # a socket without who listened
    assert sh(d, other, "cat a") == "1"  # the other fork knows nothing of it
    # Again: nothing is left to do, and nothing breaks.
    sh(d, f, "rm sock")
    assert promote(d, b, f).status == 200
    kinds = [x["kind"] for x in d.get(f"/v1/audit?sandbox={b['id']}").json["records"]]
    assert kinds.count("sandbox.promote") == 2


def test_conflicts_stop_it_before_anything_is_done(d, clean):
    b = d.create(user="root", workdir="/w")
    sh(d, b, "echo 1 > a; echo 1 > same; echo 1 > c; mkdir d e t; echo 1 > e/x; echo 1 > mine")
    f, = fork(d, b)
    sh(d, f, "echo fork > a; echo 2 > same; echo fork > c; echo new > d/new; rm -r e; echo ok > fine; echo in > t/in; echo x > u")
    sh(d, b, "echo parent > a; echo 2 > same; rm c; rm -r d; echo more > e/y; echo 2 > mine; rm -r t; echo t > t; mkdir u; echo u > u/u")
    r = promote(d, b, f)
    assert r.status == 409 and r.json["error"]["code"] == "conflict" and r.json["error"]["remedy"], r
    assert set(r.json["conflicts"]) == {"/w/a", "/w/c", "/w/d/new", "/w/e/y", "/w/t/in", "/w/u", "/w/u/u"}, r.json
    assert sh(d, b, "cat a same mine e/y; test -e fine || echo none") == "parent\n2\n2\nmore\nnone"
    r = promote(d, b, f, force=True)
    assert r.status == 200 and set(r.json["conflicts"]) == {"/w/a", "/w/c", "/w/d/new", "/w/e/y", "/w/t/in", "/w/u", "/w/u/u"}, r
    assert sh(d, b, "cat a same c d/new fine mine t/in u; test -e e || echo none") == "fork\n2\nfork\nnew\nok\n2\nin\nx\nnone"


def test_forks_of_what_was_restored_and_forks_of_forks(d, clean):
    b = d.create(user="root", workdir="/w")
    sh(d, b, "echo 1 > a")
    c = checkpoint(d, b)
    b, = restore(d, c)
    f, = fork(d, b)
    sh(d, f, "echo 2 > a")
    g, = fork(d, f)
    sh(d, g, "echo 3 > b")
    assert promote(d, f, g).json["added"] == 1
    assert promote(d, b, f).status == 200
    assert sh(d, b, "cat a b") == "2\n3"
    # A fork that is paused can be read; a sandbox that is cannot be written to.
    sh(d, f, "echo 4 > a")
    d.post(f"/v1/sandboxes/{f['id']}/pause")
    error_of = promote(d, b, f)  # since the fork both have changed it, the one by the first promote
    assert error_of.status == 409 and error_of.json["conflicts"] == ["/w/a"]
    assert promote(d, b, f, force=True).status == 200 and sh(d, b, "cat a") == "4"
    d.post(f"/v1/sandboxes/{b['id']}/pause")
    error(promote(d, b, f), 409, "conflict")


def test_a_parent_that_slept_or_was_restored_is_still_the_parent(d, clean):
    b = d.create(user="root", workdir="/w")
    sh(d, b, "echo 1 > a")
    c = checkpoint(d, b)
    f, = fork(d, b)
    sh(d, f, "echo 2 > a; echo new > n")
    assert d.post(f"/v1/sandboxes/{b['id']}/hibernate").status == 200
    assert d.post(f"/v1/sandboxes/{b['id']}/resume").status == 200
    r = promote(d, b, f).json
    assert (r["added"], r["changed"]) == (1, 1), r
    assert sh(d, b, "cat a n") == "2\nnew"
    assert d.post(f"/v1/sandboxes/{b['id']}/restore", {"checkpoint": c["id"]}).status == 200
    assert sh(d, b, "cat a") == "1"
    assert promote(d, b, f).status == 200 and sh(d, b, "cat a n") == "2\nnew"


def test_what_is_refused(d, clean):
    b = d.create(user="root")
    stranger = d.create()
    f, = fork(d, b)
    error(promote(d, b, stranger), 409, "conflict")
    error(promote(d, b, b), 409, "conflict")
    error(promote(d, f, b), 409, "conflict")
    error(promote(d, b, {"id": "nobody"}), 404, "not_found")
    url = f"/v1/sandboxes/{b['id']}/promote"
    error(d.post(url, {}), 400, "invalid")
    error(d.post(url, {"from": f["id"], "more": 1}), 400, "invalid")
    error(d.post(url, {"from": f["id"], "force": "yes"}), 400, "invalid")
    t = as_tenant(d, "promoter")
    own = t.create()
    error(t.post(f"/v1/sandboxes/{own['id']}/promote", {"from": f["id"]}), 404, "not_found")
    t.delete(f"/v1/sandboxes/{own['id']}")


def test_without_room_nothing_is_begun(d, clean):
    b = d.create(user="root", workdir="/w", disk="32M")
    f, = fork(d, b)
    sh(d, f, "head -c 20000000 /dev/urandom > big")
    sh(d, b, "head -c 20000000 /dev/urandom > own")
    e = error(promote(d, b, f), 422, "refused")
    assert "left" in e["message"]
    assert sh(d, b, "ls") == "own"


def test_two_at_once(d, clean):
    b = d.create(user="root", workdir="/w")
    forks = fork(d, b, 3)
    for i, f in enumerate(forks):
        sh(d, f, f"mkdir n{i}; cd n{i}; seq 500 | xargs touch")
    got = parallel(3, lambda i: promote(d, b, forks[i]).status)
    assert set(got) <= {200, 409} and 200 in got
    for f in forks:
        assert promote(d, b, f).status == 200
    assert sh(d, b, "ls | wc -l; ls n0 n1 n2 | grep -c '^[0-9]'") == "3\n1500"
