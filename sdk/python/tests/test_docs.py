"""What docs/python.md and the README show, runs, and leaves nothing behind."""
import os
import pathlib
import re
import subprocess
import sys

import image_archive
import pytest
from cloche import Cloche

SDK = pathlib.Path(__file__).resolve().parents[1]
PAGES = (SDK / "README.md", SDK.parents[1] / "docs" / "python.md")
BLOCKS = [
    (f"{page.name}-{n}", block)
    for page in PAGES
    for n, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]


def test_there_are_blocks():
    assert len(BLOCKS) >= 10


def there(daemon):
    """What the tests before have left, and a block must not add to."""
    with Cloche(daemon.url, daemon.token) as c:
        found = [[x.id for x in kind.list()] for kind in (c.sandboxes, c.checkpoints)]
        return found + [[x.name for x in kind.list()] for kind in (c.templates, c.secrets, c.pools, c.images)]


@pytest.mark.parametrize("block", [b for _, b in BLOCKS], ids=[i for i, _ in BLOCKS])
def test_a_block_runs(block, daemon, tmp_path):
    before = there(daemon)
    (tmp_path / "rootfs.tar").write_bytes(image_archive.rootfs())
    env = {**os.environ, "CLOCHE_URL": daemon.url, "CLOCHE_TOKEN": daemon.token}
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], env=env, cwd=tmp_path, timeout=100, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stderr and "Warning" not in done.stderr
    assert there(daemon) == before
