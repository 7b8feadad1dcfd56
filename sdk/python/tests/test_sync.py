"""The tests of tests/both for the client without asyncio."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))
import unasync  # noqa: E402

for path in sorted((HERE / "both").glob("test_*.py")):
    before = {k for k in globals() if k.startswith("test_")}
    exec(compile(unasync.convert(path.read_text()), str(path), "exec"))  # pylint: disable=exec-used
    assert {k for k in globals() if k.startswith("test_")} > before, f"{path} has no tests, or their names are another's"
