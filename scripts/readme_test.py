#!/usr/bin/python3
"""Runs every block of README.md, in order, in a clean copy of the tree. TAP output.

```sh       one bash with -e and without a terminal. The folder it ends in and its variables are there in the next,
            as if all were typed into one terminal. `make install` goes to a prefix inside the copy, which is on PATH.
```console  another terminal: "$ " starts a program that goes on, the other lines are what it prints ("…" stands for
            anything). A first line "^C" ends the one that was started before, which must exit with 0.

A daemon gets a data folder and a port of its own, by a configuration file. The copy is in a folder that only root may
enter, as people's home folders are.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMEOUT = 600
SPEAK = 60  # seconds until a program of a console block has printed what it should
PORT, DATA = '127.0.0.1:7070', '/var/lib/cloche'  # what README.md says


def blocks(text):
    """(line number, kind, script) of each block."""
    for m in re.finditer(r'^```(sh|console)[^\S\n]*\n(.*?)^```[^\S\n]*$', text, re.M | re.S):
        yield text.count('\n', 0, m.start()) + 1, m.group(1), m.group(2)


def copy_tree(to):
    """The files git knows or would add, as they are now."""
    names = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT,
                           capture_output=True, check=True).stdout.decode().split('\0')
    for name in filter(None, names):
        src, dst = os.path.join(ROOT, name), os.path.join(to, name)
        if not os.path.lexists(src):
            continue
        os.makedirs(os.path.dirname(dst), exist_ok=True)
        shutil.copy2(src, dst, follow_symlinks=False)
    # A copy is still a repository: what a reader got from git clone.
    subprocess.run('git init -q && git add -A && git -c user.name=t -c user.email=t@t commit -qm copy', shell=True,
                   cwd=to, check=True)


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Terminal:
    """What a console block started."""

    def __init__(self, command, cwd, env):
        self.lines = []
        self.process = subprocess.Popen(['bash', '-c', 'exec ' + command], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode(errors='replace').rstrip('\n'))

    def expect(self, wanted):
        """Waits for these lines, in this order. What is wrong, or None."""
        patterns = ['.*'.join(map(re.escape, line.split('…'))) for line in wanted]
        end = time.monotonic() + SPEAK
        while time.monotonic() < end:
            seen, at = list(self.lines), 0
            for line in seen:
                at += at < len(patterns) and re.fullmatch(patterns[at], line) is not None
            if at == len(patterns):
                return None
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        return f'it did not print: {wanted[at]}'

    def end(self):
        """Ctrl-C. What is wrong, or None."""
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return 'still running 60 s after Ctrl-C'
        return None if code == 0 else f'exit {code} after Ctrl-C'


class Reader:
    """Somebody who types it all, with two terminals."""

    def __init__(self, tmp):
        self.tmp, self.where = tmp, os.path.join(tmp, 'closed', 'cloche')
        os.makedirs(self.where)
        os.chmod(os.path.dirname(self.where), 0o700)
        os.chmod(tmp, 0o755)  # the API's user passes here, to its data folder
        self.data, self.listen = os.path.join(tmp, 'data'), f'127.0.0.1:{free_port()}'
        with open(f'{tmp}/serve.conf', 'w', encoding='utf-8') as f:
            f.write(f'data = {self.data}\nlisten = {self.listen}\n')
        # In place of the sockets that are looked for when nothing is said.
        os.makedirs(f'{tmp}/config/cloche')
        with open(os.open(f'{tmp}/config/cloche/config', os.O_WRONLY | os.O_CREAT, 0o600), 'w', encoding='utf-8') as f:
            f.write(f'url = unix:{self.data}/cloche.sock\n')
        prefix = os.path.join(tmp, 'prefix')
        self.env = dict(os.environ, CLOCHE_README_TEST='1', PREFIX=prefix, XDG_CONFIG_HOME=f'{tmp}/config',
                        PATH=f'{prefix}/bin:{os.environ["PATH"]}', CCACHE_BASEDIR=self.where)
        for name in ('BUILD', 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS', 'CLOCHE_URL', 'CLOCHE_TOKEN'):
            self.env.pop(name, None)
        self.other = None
        copy_tree(self.where)
        self.tree = self.where

    def own(self, script):
        """With the port and data folder we have, in place of the ones a reader has."""
        return script.replace(PORT, self.listen).replace(DATA, self.data)

    def sh(self, script):
        """(what is wrong or None, output)"""
        keep = f'pwd >"{self.tmp}/where"; export -p >"{self.tmp}/env"'
        before = f'[ ! -e "{self.tmp}/env" ] || . "{self.tmp}/env"\ntrap \'{keep}\' EXIT\nset -a\n'
        try:
            p = subprocess.run(['bash', '-euo', 'pipefail', '-c', before + self.own(script)],
                               cwd=self.where, env=self.env, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            why, output = f'exit {p.returncode}' if p.returncode else None, p.stdout
        except subprocess.TimeoutExpired as e:
            why, output = f'still running after {TIMEOUT} s', e.stdout or b''
        if os.path.exists(f'{self.tmp}/where'):
            with open(f'{self.tmp}/where', encoding='utf-8') as f:
                self.where = f.read().rstrip('\n')
        return why, output.decode(errors='replace')

    def console(self, script):
        lines = self.own(script).splitlines()
        if lines[0] == '^C':
            why = self.other.end() if self.other else 'nothing runs that could be ended'
            if why:
                return why, '\n'.join(self.other.lines if self.other else [])
            self.other, lines = None, lines[1:]
        if not lines:
            return None, ''
        if not lines[0].startswith('$ ') or self.other:
            return 'a console block is "^C", then "$ " and a command, then what it prints; one runs at a time', ''
        command = lines[0][2:]
        if 'cloche serve' in command:
            command += f' --config {self.tmp}/serve.conf'
        self.other = Terminal(command, self.tree, self.env)
        return self.other.expect(lines[1:]), '\n'.join(self.other.lines)

    def finish(self):
        """Nothing may be left running: neither the other terminal's program nor a sandbox."""
        if not os.path.exists(self.data):
            return None, ''
        cloche, conf = f'{self.tree}/build/cloche', f'{self.tmp}/serve.conf'
        if not self.other:
            self.other = Terminal(f'{cloche} serve --config {conf}', self.tree, self.env)
            self.other.expect(['cloche … serving on …'])
        p = subprocess.run([cloche, 'ls', '--json'], env=self.env, capture_output=True, text=True)
        left = p.stdout.strip().replace('[]', '') if p.returncode == 0 else p.stderr
        why = self.other.end()
        if left:
            # They outlive a daemon that is not told to end them.
            last = Terminal(f'{cloche} serve --config {conf} --stop-sandboxes', self.tree, self.env)
            last.expect(['cloche … serving on …'])
            last.end()
            why = 'sandboxes are left'
        return why, left


def tell(number, what, why, text):
    print(f'{"not ok" if why else "ok"} {number} - {what}', flush=True)
    if why:
        print(f'# {why}')
        for line in text.splitlines()[-60:]:
            print(f'#   {line}')
    return 1 if why else 0


def main():
    with open(os.path.join(ROOT, 'README.md'), encoding='utf-8') as f:
        found = list(blocks(f.read()))
    print(f'1..{len(found) + 1}', flush=True)
    if not found:
        print('# README.md has no blocks')
        return 1
    failed = 0
    with tempfile.TemporaryDirectory(prefix='cloche-readme-') as tmp:
        reader = Reader(tmp)
        try:
            for number, (line, kind, script) in enumerate(found, 1):
                begin = time.monotonic()
                why, output = (reader.sh if kind == 'sh' else reader.console)(script)
                failed += tell(number, f'README.md:{line}', why, script + output)
                print(f'# {time.monotonic() - begin:.1f} s', flush=True)
        finally:
            why, output = reader.finish()
        failed += tell(len(found) + 1, 'nothing is left', why, output)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
