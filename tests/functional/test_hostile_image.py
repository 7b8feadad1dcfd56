"""An image whose links lead into the sandbox's own places: a mount ends there in an error, never on a mask."""
import os
import shutil

import pytest

import host

LINKS = {
    'proc-abs': '/proc', 'proc-rel': 'proc', 'proc-up': '../../../proc', 'deep/proc': '../proc', 'chain': 'chain2',
    'chain2': '/proc', 'dev-abs': '/dev', 'sys-abs': '/sys', 'magic': '/proc/self/root', 'loop': 'loop',
    'cwd': '/proc/self/cwd',
}


@pytest.fixture
def image(tmp_path):
    root = tmp_path / 'image'
    for name in ('bin', 'proc', 'dev', 'sys', 'tmp', 'home/user', 'deep', 'data'):
        (root / name).mkdir(parents=True)
    shutil.copy('/usr/bin/busybox', root / 'bin/busybox')
    for name in ('sh', 'cat', 'ls'):
        (root / 'bin' / name).symlink_to('busybox')
    for name, to in LINKS.items():
        (root / name).symlink_to(to)
    (root / 'deep/data').symlink_to('../data')
    return root


@pytest.mark.parametrize('target', [
    '/proc-abs', '/proc-abs/sys', '/proc-abs/sys/kernel', '/proc-abs/kmsg', '/proc-rel', '/proc-rel/sys',
    '/proc-up/sys', '/deep/proc', '/deep/proc/sys', '/chain/sys', '/dev-abs', '/dev-abs/shm', '/dev-abs/pts',
    '/sys-abs', '/sys-abs/fs', '/magic/proc', '/magic/proc/sys', '/loop/x', '/cwd', '/proc-abs/1/fd', '/proc-abs/new',
])
@pytest.mark.parametrize('kind', ['mount', 'tmpfs'])
def test_a_target_that_leads_into_our_places_is_refused(image, shared, kind, target):
    option = ('--mount', f'{shared}:{target}') if kind == 'mount' else ('--tmpfs', target)
    r = host.run('--image', image, *option, '--', '/bin/ls', '/')
    assert r.code == 125, r
    assert r.err.decode().startswith('cloche: make the sandbox: attach a mount') and r.err.count(b'\n') == 1, r
    assert r.out == b''


@pytest.mark.parametrize('target', ['/proc', '//proc', '/./proc', '/proc/sys', '/.//./dev/shm', '/sys/', '/', '/.', '//',
                                    '/x/../proc'])
def test_a_target_that_names_our_places_is_refused(image, shared, target):
    r = host.run('--image', image, '--mount', f'{shared}:{target}', '--', '/bin/ls', '/')
    assert r.code == 125 and r.err.count(b'\n') == 1, r


def test_a_link_that_leaves_its_folder_is_followed_whole(image, shared):
    (shared / 'f').write_text('here')
    r = host.run('--image', image, '--mount', f'{shared}:/deep/data', '--', '/bin/cat', '/data/f')
    assert (r.code, r.out) == (0, b'here'), r


@pytest.mark.parametrize('name', ['proc', 'dev', 'sys'])
@pytest.mark.parametrize('to', ['/tmp', '/proc/self/root', '../../..', 'nowhere'])
def test_our_places_cannot_be_links(image, name, to):
    (image / name).rmdir()
    (image / name).symlink_to(to)
    r = host.run('--image', image, '--', '/bin/ls', '/')
    assert r.code == 125 and r.err.count(b'\n') == 1, r


def test_a_work_folder_is_not_made_outside(image):
    (image / 'out').symlink_to('/../../../../../../..' + str(image.parent) + '/escaped')
    r = host.run('--image', image, '--workdir', '/out/x', '--', '/bin/ls', '/')
    assert not (image.parent / 'escaped').exists(), r
    assert not os.path.exists('/escaped')
