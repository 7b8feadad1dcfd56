"""The client. The one for asyncio is the source; scripts/unasync.py makes the other from it."""
