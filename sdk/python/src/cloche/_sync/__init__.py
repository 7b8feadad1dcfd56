# Made from ../_async/__init__.py by scripts/unasync.py: change that one.
"""The client. The one for asyncio is the source; scripts/unasync.py makes the other from it."""
