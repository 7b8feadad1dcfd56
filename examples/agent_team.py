#!/usr/bin/env python3
"""Several agents work on the same task, each on a fork of one checkpoint; the best one's work is kept.

The agents here are three fixed attempts at a function. Put a loop around a model (anthropic_agent.py) in the place of `work`.
"""
from concurrent.futures import ThreadPoolExecutor

from cloche import Cloche, Tools

TESTS = """
import unittest
from roman import roman

class Roman(unittest.TestCase):
    def test_small(self): self.assertEqual([roman(n) for n in (1, 2, 3)], ["I", "II", "III"])
    def test_subtractive(self): self.assertEqual([roman(n) for n in (4, 9, 40)], ["IV", "IX", "XL"])
    def test_year(self): self.assertEqual(roman(1994), "MCMXCIV")
"""
ATTEMPTS = {
    "hasty": "def roman(n):\n    return 'I' * n\n",
    "broken": "def roman(n)\n    return n\n",
    "careful": """
STEPS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
         (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]

def roman(n):
    text = ""
    for value, letters in STEPS:
        text += letters * (n // value)
        n %= value
    return text
""",
}
COUNT = """
import unittest
suite = unittest.defaultTestLoader.discover(".")
result = unittest.TestResult()
suite.run(result)
print(result.testsRun - len(result.failures) - len(result.errors))
"""


def work(name, fork):
    """What one agent does, and how many tests pass then."""
    tools = Tools(fork)
    tools.call("write_file", {"path": "roman.py", "content": ATTEMPTS[name]})
    return int(fork.exec(["python3", "-c", COUNT], timeout="60s").stdout)


with Cloche() as client, client.sandboxes.create(timeout="1h") as base:
    base.files.write("test_roman.py", TESTS)
    start = base.checkpoint("start")
    forks = client.checkpoints.restore_many(start, len(ATTEMPTS))
    try:
        with ThreadPoolExecutor() as pool:
            passed = dict(zip(ATTEMPTS, pool.map(work, ATTEMPTS, forks)))
        best = max(passed, key=passed.get)
        print(passed, "best:", best)
        winner = forks[list(ATTEMPTS).index(best)]
        for entry in winner.diff({"checkpoint": start.id}).entries:
            print(f"{entry.change} {entry.path}")
        base.files.write("roman.py", winner.files.read("roman.py"))
        print(base.exec(["python3", "-c", "from roman import roman; print(roman(2026))"]).stdout, end="")
    finally:
        for fork in forks:
            fork.delete()
        client.checkpoints.delete(start)
