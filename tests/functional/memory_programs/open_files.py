"""Files that are open, and what programs remember of them: number, content, attributes. Each step looks at all of them, writes to
those that can be written, and opens one more that was there before."""
import mmap
import os
import stat

from serve import serve

ROOM = "/tmp/p/files"
os.makedirs(ROOM)
# Files that nobody has open make numbers large, and leave gaps.
for i in range(300):
    open(f"{ROOM}/gap{i}", "w").close()
for i in range(0, 300, 2):
    os.unlink(f"{ROOM}/gap{i}")


def made(name, content=b"begin\n"):
    path = f"{ROOM}/{name}"
    with open(path, "wb") as f:
        f.write(content)
    return path


held = {}


def hold(path, flags):
    fd = os.open(path, flags)
    held[path] = (fd, flags, os.fstat(fd).st_ino)
    return fd


hold(made("both"), os.O_RDWR)
hold(made("append"), os.O_WRONLY | os.O_APPEND)
hold(made("read"), os.O_RDONLY)
hold(made("empty", b""), os.O_RDWR)
hold("/etc/own.conf" if os.access("/etc", os.W_OK) else made("own.conf"), os.O_RDWR)
sparse = made("sparse")
os.truncate(sparse, 1 << 30)
with open(sparse, "r+b") as f:
    f.seek(512 << 20)
    f.write(b"middle")
hold(sparse, os.O_RDWR)
dressed = made("dressed")
os.setxattr(dressed, "user.note", b"kept")
os.chmod(dressed, 0o640)
os.utime(dressed, ns=(10**18, 10**18 + 123456789))
hold(dressed, os.O_RDONLY)
mapped = made("mapped", bytes(8192))
room = mmap.mmap(hold(mapped, os.O_RDWR), 8192)
for i in range(8):
    made(f"later{i}")
lines = 0


def look():
    for path, (fd, flags, number) in held.items():
        by_fd, by_name = os.fstat(fd), os.stat(path)
        if not number == by_fd.st_ino == by_name.st_ino or by_fd.st_dev != by_name.st_dev:
            return f"{path}: had {number}, is {by_fd.st_ino}, its name leads to {by_name.st_ino}"
    st = os.stat(dressed)
    if os.getxattr(dressed, "user.note") != b"kept" or stat.S_IMODE(st.st_mode) != 0o640 or st.st_mtime_ns != 10**18 + 123456789:
        return f"dressed: {st}"
    st = os.stat(sparse)
    with open(sparse, "rb") as f:
        begin = f.read(6)
        f.seek(512 << 20)
        if st.st_size != 1 << 30 or st.st_blocks > 1024 or begin != b"begin\n" or f.read(7) != b"middle\0":
            return f"sparse: {st}"
    with open("/proc/self/maps", encoding="ascii") as f:
        there = {int(line.split()[4]) for line in f if line.rstrip().endswith("/mapped")}
    if there != {held[mapped][2]}:
        return f"mapped: {there}"
    return None


def hold_twin(n):
    """In a copy the numbers of new files begin anew: one of them gets the number that another open file was restored with."""
    numbers = {number for _, _, number in held.values()}
    for _ in range(500):
        path = made(f"twin{n}")
        if os.stat(path).st_ino in numbers:
            hold(path, os.O_RDWR)
            return
        os.unlink(path)


def step(n):
    global lines
    wrong = look()
    if wrong:
        return wrong
    for path, (fd, flags, _) in held.items():
        if path.endswith(("/both", "/append")):
            os.lseek(fd, 0, os.SEEK_END)
            os.write(fd, b"line\n")
    lines += 1
    room[n] = n
    for name in "both", "append":
        with open(f"{ROOM}/{name}", "rb") as f:
            if f.read() != b"begin\n" + b"line\n" * lines:
                return f"{name} has other content"
    with open(mapped, "rb") as f:
        if list(f.read(n + 1)[1:]) != list(range(1, n + 1)):
            return "mapped has other content"
    hold(f"{ROOM}/later{n % 8}", os.O_RDWR)
    if n == 2:
        hold_twin(n)
    return look() or f"{n} same"


serve(step)
