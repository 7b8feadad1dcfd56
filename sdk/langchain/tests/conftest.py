"""Which tests of langchain-tests 1.1.9 contradict the deepagents that is installed."""
from importlib.metadata import version

import pytest

DEEPAGENTS = tuple(int(n) for n in version("deepagents").split(".")[:3])
# Its protocol says since 0.7 that `write` replaces a file that exists, and since 0.7.10 that `glob` gives absolute paths.
SINCE = {
    "test_write_existing_file_fails": (0, 7, 0),
    "test_glob": (0, 7, 10),
    "test_glob_basic_pattern": (0, 7, 10),
    "test_glob_with_directories": (0, 7, 10),
    "test_glob_hidden_files_explicitly": (0, 7, 10),
    "test_glob_with_character_class": (0, 7, 10),
    "test_glob_with_question_mark": (0, 7, 10),
}


def pytest_collection_modifyitems(items):
    for item in items:
        if DEEPAGENTS >= SINCE.get(item.name, (1000,)):
            item.add_marker(pytest.mark.xfail(strict=True, reason="deepagents says otherwise"))
