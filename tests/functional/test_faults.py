"""Any one system call fails while a sandbox is made, used and ended.

build/faulty/ holds the programs with a switch in the one gate all their calls go through (src/base/sys.c). Each run
makes the n-th call of one name fail, on the host's side or the agent's. It must end in one of two ways: exit 125 with
one line, or exit 0 with a sandbox of full strength. Full strength means: its portrait (what /proc shows of it from
outside while its command runs: ids, capabilities, filters, namespaces, mounts, limits, cgroups) is the one of a
sandbox without a fault. Exit 0 is allowed for the calls in OPTIONAL only. Afterwards nothing may be left.
"""
import errno
import fcntl
import glob
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.path.join(ROOT, os.environ.get('CLOCHE_BUILD') or 'build'))
HANG = 10.0
COLD_PER_CALL = 4  # runs that build the skeleton anew are slow: so many places in each call's row


# What a kernel that is short of something, or configured against us, answers. Two each.
ERRNOS = {
    'openat': ('EMFILE', 'EACCES'), 'openat2': ('EMFILE', 'EACCES'), 'read': ('EIO', 'ENOMEM'),
    'write': ('ENOSPC', 'EIO'), 'mkdirat': ('ENOSPC', 'EROFS'), 'mknodat': ('ENOSPC', 'EPERM'),
    'symlinkat': ('ENOSPC', 'EROFS'), 'unlinkat': ('EBUSY', 'EROFS'), 'fcntl': ('EMFILE', 'ENOLCK'),
    'pipe2': ('EMFILE', 'ENFILE'), 'socketpair': ('EMFILE', 'ENFILE'), 'sendmsg': ('ENOBUFS', 'EPIPE'),
    'recvmsg': ('ENOMEM', 'ECONNRESET'), 'clone3': ('EAGAIN', 'ENOMEM'), 'execve': ('ENOMEM', 'EIO'),
    'execveat': ('ENOMEM', 'EACCES'), 'unshare': ('EPERM', 'ENOSPC'), 'setns': ('EPERM', 'ENOMEM'),
    'setresuid': ('EAGAIN', 'EPERM'), 'prctl': ('EPERM', 'EINVAL'), 'seccomp': ('EINVAL', 'ENOMEM'),
    'landlock_create_ruleset': ('EMFILE', 'ENOMEM'), 'move_mount': ('ENOSPC', 'EPERM'),
    'fsconfig': ('EINVAL', 'ENOMEM'), 'mount_setattr': ('EPERM', 'ENOMEM'), 'getrandom': ('ENOSYS', 'EPERM'),
}

# Calls that may fail (some of them) without the sandbox being any weaker, and why.
OPTIONAL = {
    ('host', 'openat'): 'cgroup controllers nobody asked for (freezer, blkio, cpuacct); the network namespace made '
                        'ahead by a thread is made again in its turn',
    ('host', 'openat2'): 'a folder of a layer that cannot be entered stays one that overlay joins (file numbers)',
    ('host', 'read'): 'a stdin that cannot be read has ended',
    ('host', 'write'): 'a command that takes no more input',
    ('host', 'mkdirat'): 'the group that only keeps a kernel switch on (speed)',
    ('host', 'unlinkat'): 'removing a cgroup is tried again',
    ('host', 'fcntl'): 'giving a slot back: the kernel does it when we end',
    ('host', 'ioctl'): 'the network namespace made ahead by a thread is made again in its turn',
    ('host', 'unshare'): 'the network namespace made ahead by a thread is made again in its turn',
    ('host', 'sendmsg'): 'who read our stdout went away; a guard that is not told sees for itself that all is gone',
    ('agent', 'openat'): 'where System V ids are chosen: without it, a restore of such objects is refused; what counts OOM kills',
    ('agent', 'fcntl'): 'likewise',
    ('agent', 'mount'): 'a control group is mounted in a second way: with all controllers of its hierarchy',
    ('agent', 'prctl'): 'EINVAL is how the kernel says that there are no more capabilities',
    ('agent', 'sched_getattr'): 'who cannot look at its slice has not made it longer either (speed)',
    ('host', 'recvmsg'): 'before the sandbox stands, the agent is asked again what it said',
    ('host', 'pidfd_send_signal'): 'it is sent twice, and the agent ends with its socket anyway',
}


def optional(side, call):
    return OPTIONAL.get((side, call))


# ---- the ground the runs stand on -----------------------------------------------------------------------------------

class Ground:
    """Runs in the private /tmp of conftest.py; orphans become children of this process, so that all are found."""

    def __init__(self):
        # Not in /tmp: the skeleton's devices and idmapped layers need a filesystem that allows both.
        self.cache = f'/var/cache/cloche-test-{os.getpid()}'
        self.cold, self.bin = self.cache + '-cold', self.cache + '-bin'
        for path in (self.cache, self.cold, self.bin):
            shutil.rmtree(path, ignore_errors=True)
            os.mkdir(path, 0o755)
        for name in ('cloche', 'cloche-agent'):
            shutil.copy2(os.path.join(BUILD, 'faulty', name), self.bin)
        self.counts = {'host': '/tmp/fault-host', 'agent': '/tmp/fault-agent'}
        self.zero()
        self.run()  # makes the cache and the slots
        self.slots = os.open('/run/cloche/slots', os.O_RDWR | os.O_CLOEXEC)
        self.plain = self.run()
        self.before = self.state()

    def done(self):
        for path in (self.cache, self.cold, self.bin):
            shutil.rmtree(path)
        for path in self.counts.values():
            os.unlink(path)
        os.close(self.slots)

    def zero(self):
        for path in self.counts.values():
            with open(path, 'wb') as f:
                f.write(bytes(4096))
            os.chmod(path, 0o666)

    def count(self, side):
        with open(self.counts[side], 'rb') as f:
            data = f.read()
        rows = (struct.unpack_from('28sI', data, at) for at in range(0, len(data), 32))
        return {name.rstrip(b'\0').decode(): made for name, made in rows if made}

    def orphan_cgroups(self):
        """Groups of sandboxes whose owner no longer holds the slot: others on this machine may run some."""
        found = set()
        for path in glob.glob('/sys/fs/cgroup/*/cloche/s[0-9]*') + glob.glob('/sys/fs/cgroup/cloche/s[0-9]*'):
            slot = int(re.search(r'/s(\d+)$', path).group(1))
            lock = struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
            got = fcntl.fcntl(self.slots, 36, lock)  # F_OFD_GETLK
            if struct.unpack('hhqqi4x', got)[0] == fcntl.F_UNLCK:
                found.add(path)
        return found

    def state(self):
        with open('/proc/self/mountinfo', encoding='utf-8') as f:
            mounts = set(f.read().splitlines())
        return {
            'mount': mounts,
            # but for the folders of daemons, which `cloche run` does not make
            'file': {p for d in ('/tmp', '/var/tmp', '/run/cloche') for p in glob.glob(d + '/*')
                     if not p.startswith('/run/cloche/w-')} |
                    set(glob.glob(self.cache + '/new-*')) | set(glob.glob(self.cold + '/new-*')) |
                    set(glob.glob(self.cache + '/*/*.[0-9]*.*')) | set(glob.glob(self.cold + '/*/*.[0-9]*.*')),
            'cgroup': self.orphan_cgroups(),
        }

    def left(self):
        """What a run left behind, waiting a moment for a guard that still works."""
        end = time.monotonic() + 3
        while True:
            try:
                os.waitpid(-1, os.WNOHANG)
                process = ['a process']
            except ChildProcessError:
                process = []
            now = self.state()
            left = process + [f'{kind} {x}' for kind in now for x in sorted(now[kind] - self.before[kind])]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.01)

    def run(self, side=None, call=None, number=0, nth=0, cache=None):
        """One `cloche run -- cat` with its stdin held open until the portrait is taken."""
        env = {'PATH': '/usr/bin:/bin', 'HOME': '/root', 'CLOCHE_CACHE': cache or self.cache}
        for s, path in self.counts.items():
            env['CLOCHE_FAULT_' + s.upper()] = (f'{call}:{number}:{nth}' if s == side else '') + '@' + path
        out = Outcome()
        start = time.monotonic()
        p = subprocess.Popen([self.bin + '/cloche', 'run', '--', '/bin/cat'], env=env, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd='/', start_new_session=True)
        while p.poll() is None and time.monotonic() - start < HANG:
            out.portrait = portrait(p.pid)
            if out.portrait:
                break
            time.sleep(0.001)
        try:
            out.stdout, err = p.communicate(b'through', timeout=max(0.1, HANG - (time.monotonic() - start)))
        except subprocess.TimeoutExpired:
            out.hung = True
            os.killpg(p.pid, signal.SIGKILL)
            out.stdout, err = p.communicate()
        except BrokenPipeError:
            p.wait()
            out.stdout, err = p.stdout.read(), p.stderr.read()
        out.code, out.stderr = p.returncode, err.decode(errors='replace')
        return out


class Outcome:
    code = None
    stdout = b''
    stderr = ''
    portrait = None
    hung = False


# ---- the portrait ---------------------------------------------------------------------------------------------------

def read(path):
    try:
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()
    except OSError:
        return ''


def children(pid):
    return [int(x) for x in read(f'/proc/{pid}/task/{pid}/children').split()]


def status(pid, agent=False):
    """How the agent is confined. It may use any processor, except for the moment in which it starts a command."""
    text = read(f'/proc/{pid}/status')
    wanted = ('NoNewPrivs', 'Seccomp', 'Seccomp_filters', 'CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'Groups',
              'Uid', 'Gid', 'Cpus_allowed')
    got = dict(re.findall(r'^(\w+):\t?(.*)$', text, re.M))
    got = {k: got.get(k, '').strip() for k in wanted}
    for k in ('Uid', 'Gid'):
        got[k] = [int(x) % 65536 - 100000000 % 65536 if int(x) >= 100000000 else f'host {x}' for x in got[k].split()]
    got['Cpus_allowed'] = bin(int(got['Cpus_allowed'].replace(',', '') or '0', 16)).count('1')
    if agent:
        del got['Cpus_allowed']
    return got


def mounts(pid):
    rows = []
    for line in read(f'/proc/{pid}/mountinfo').splitlines():
        own, sep, fs = line.partition(' - ')
        own, fs = own.split(), fs.split()
        opts = [re.sub(r'^([ug]id=).*', r'\1', o) for o in fs[2].split(',')]  # its own range of ids
        opts = sorted(o for o in opts if not re.match(r'lowerdir|upperdir|workdir', o))
        root = re.sub(r'host-[0-9a-f]{16}', 'host', own[3])
        root = re.sub(r'^.*/cloche-test-\d+(-cold)?/', '', root)
        root = re.sub(r'cloche/s\d+$', 'cloche/slot', root)  # its own control group
        rows.append((own[4], root, own[5], fs[0], opts))
    return sorted(rows)


def limits(pid):
    found = {}
    for line in read(f'/proc/{pid}/cgroup').splitlines():
        _, names, path = line.split(':', 2)
        for name in names.split(',') if names else ['']:
            folder = f'/sys/fs/cgroup/{name}{path}' if name else f'/sys/fs/cgroup{path}'
            for file in ('memory.limit_in_bytes', 'memory.memsw.limit_in_bytes', 'pids.max', 'cpu.cfs_quota_us',
                         'cpu.cfs_period_us', 'memory.max', 'memory.swap.max', 'cpu.max', 'memory.oom.group'):
                if os.path.exists(f'{folder}/{file}'):
                    found[file] = read(f'{folder}/{file}').strip()
    return found


def files(pid):
    """Open descriptors but for the libraries it may just be loading."""
    found = {}
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            found[fd] = re.sub(r'\d+', '', os.readlink(f'/proc/{pid}/fd/{fd}'))
        except OSError:
            continue
    return {fd: to for fd, to in found.items() if not to.startswith('/')}


def portrait(cloche):
    """None until the command runs, or when it is gone in the middle of it."""
    spaces = ('user', 'pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup', 'time')
    for agent in children(cloche):
        for pid in children(agent):
            if read(f'/proc/{pid}/comm') != 'cat\n' or not read(f'/proc/{pid}/environ'):
                continue
            try:
                return {
                    'command': status(pid), 'agent': status(agent, agent=True), 'mounts': mounts(pid),
                    'groups': limits(pid),
                    'rlimits': read(f'/proc/{pid}/limits'), 'environment': read(f'/proc/{pid}/environ'),
                    'namespaces': {x: [os.readlink(f'/proc/{p}/ns/{x}') != os.readlink(f'/proc/self/ns/{x}')
                                       for p in (pid, agent)] for x in spaces},
                    'memory': read(f'/proc/{pid}/root/proc/meminfo').splitlines()[:1],
                    'cpus': read(f'/proc/{pid}/root/sys/devices/system/cpu/online'),
                    'files': files(pid),
                }
            except (OSError, IndexError):
                return None
    return None


def tree(path):
    """Every file of a skeleton with its type, mode and owner."""
    found = {}
    for folder, names, files in os.walk(path):
        for name in names + files:
            st = os.lstat(os.path.join(folder, name))
            found[os.path.relpath(os.path.join(folder, name), path)] = \
                (stat.filemode(st.st_mode), st.st_uid, st.st_gid, st.st_rdev, st.st_size if stat.S_ISREG(st.st_mode) else 0)
    return found


# ---- the tests ------------------------------------------------------------------------------------------------------

@pytest.fixture(scope='module')
def ground():
    g = Ground()
    yield g
    g.done()


def judge(g, side, call, name, nth, out):
    """What is wrong with a run's outcome, or None."""
    hit = g.count(side).get(call, 0) >= nth  # how often output and answers are read depends on the time they come
    what = f'{side} {call} #{nth} {name}: '
    lines = out.stderr.splitlines()
    if out.hung:
        return what + f'hangs; stderr {out.stderr!r}'
    if out.code == 125:
        if len(lines) != 1 or not lines[0].startswith('cloche: '):
            return what + f'exit 125 with {len(lines)} lines: {out.stderr!r}'
        return None
    # The command itself could not be started: its own exit code, the sandbox stood.
    if out.code == 126 and (side, call) == ('agent', 'execve') and len(lines) == 1:
        return None
    if out.code != 0:
        return what + f'exit {out.code}: {out.stderr!r}'
    if hit and not optional(side, call):
        return what + f'ignored; stderr {out.stderr!r}'
    if out.portrait is None:
        return what + 'exit 0, but no portrait could be taken'
    if out.portrait != g.plain.portrait:
        diff = [k for k in out.portrait if out.portrait[k] != g.plain.portrait[k]]
        return what + f'weaker: {[(k, out.portrait[k], g.plain.portrait[k]) for k in diff]}'
    # Its stdin or our stdout may be what failed.
    if out.stdout != b'through' and not (out.stdout == b'' and call in ('read', 'write', 'sendmsg')):
        return what + f'stdout {out.stdout!r}'
    return None


def sample(made, most):
    """Places 1..made, all of them or a fixed choice with the first and the last."""
    if made <= most:
        return range(1, made + 1)
    return sorted({1 + i * (made - 1) // (most - 1) for i in range(most)})


def try_all(g, side, call, made, most=10 ** 6, cache=None):
    wrong, hit = [], 0
    for name in ERRNOS.get(call, ('EPERM', 'ENOMEM'))[:1 if cache else 2]:
        for nth in sample(made, most):
            g.zero()
            if cache:
                shutil.rmtree(cache)
                os.mkdir(cache, 0o755)
            out = g.run(side, call, getattr(errno, name), nth, cache)
            hit += g.count(side).get(call, 0) >= nth
            problem = judge(g, side, call, name, nth, out)
            left = g.left()
            if problem:
                wrong.append(problem)
            if left:
                wrong.append(f'{side} {call} #{nth} {name}: left behind: {left}')
            if cache:
                wrong += [f'{side} {call} #{nth} {name}: skeleton differs: {x}' for x in half_made(g, cache)]
    assert hit, 'the fault was never reached'
    assert not wrong, '\n' + '\n'.join(wrong)


def half_made(g, cache):
    """A skeleton in the cache is a whole one."""
    want = tree(glob.glob(g.cache + '/host-*')[0])
    for folder in glob.glob(cache + '/host-*'):
        have = tree(folder)
        for part in ('root', 'dev'):
            if {k: v for k, v in have.items() if k.split('/')[0] == part} != \
                    {k: v for k, v in want.items() if k.split('/')[0] == part}:
                return sorted(set(want.items()) ^ set(have.items()))[:4]
    return []


def calls():
    """The table in src/base/sys.h."""
    text = read(os.path.join(ROOT, 'src/base/sys.h'))
    return re.findall(r'^\tX\((\w+)\)', text, re.M)


def test_a_sandbox_without_a_fault_is_full_strength(ground):
    p = ground.plain
    assert (p.code, p.stdout, p.stderr) == (0, b'through', '')
    assert p.portrait['command']['Seccomp'] == '2'
    assert p.portrait['command']['NoNewPrivs'] == '1'
    assert p.portrait['command']['Uid'] == [1000] * 4
    assert all(int(p.portrait['command'][x], 16) == 0 for x in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'))
    assert all(all(x) for x in p.portrait['namespaces'].values())
    assert p.portrait['groups'].get('pids.max') == '256'
    assert '536870912' in (p.portrait['groups'].get('memory.limit_in_bytes'), p.portrait['groups'].get('memory.max'))
    assert p.portrait['memory'] == ['MemTotal:         524288 kB']
    assert not ground.left()
    # The rest is only as good as the portrait: it must be the same every time.
    assert ground.run().portrait == p.portrait


def test_what_is_left_behind_is_seen(ground):
    with open('/var/tmp/left', 'w', encoding='utf-8'):
        pass
    try:
        assert ground.left() == ['file /var/tmp/left']
    finally:
        os.unlink('/var/tmp/left')


@pytest.mark.parametrize('call', calls())
@pytest.mark.parametrize('side', ['host', 'agent'])
def test_a_call_fails(ground, side, call):
    ground.zero()
    assert ground.run().code == 0
    made = ground.count(side).get(call, 0)
    if made:
        try_all(ground, side, call, made)
    # Nothing to break where a side never makes it; the last test says which it has to.


@pytest.mark.parametrize('call', ['openat', 'read', 'write', 'mkdirat', 'mknodat', 'symlinkat', 'fchownat', 'fchmod',
                                  'unlinkat', 'sendmsg'])
def test_a_call_fails_while_the_skeleton_is_built(ground, call):
    shutil.rmtree(ground.cold)
    os.mkdir(ground.cold, 0o755)
    ground.zero()
    assert ground.run(cache=ground.cold).code == 0
    assert not half_made(ground, ground.cold)
    try_all(ground, 'host', call, ground.count('host')[call], COLD_PER_CALL, ground.cold)


def test_the_calls_that_are_made(ground):
    ground.zero()
    assert ground.run().code == 0
    host, agent = ground.count('host'), ground.count('agent')
    assert {'openat', 'clone3', 'unshare', 'setns', 'fsopen', 'fsconfig', 'fsmount', 'open_tree', 'mount_setattr',
            'sendmsg', 'recvmsg', 'pipe2', 'socketpair', 'execveat', 'mkdirat', 'write'} <= set(host)
    assert {'openat2', 'move_mount', 'pivot_root', 'umount2', 'chroot', 'chdir', 'capset', 'prctl', 'seccomp',
            'landlock_restrict_self', 'setresuid', 'setresgid', 'setgroups', 'execve', 'sethostname'} <= set(agent)
