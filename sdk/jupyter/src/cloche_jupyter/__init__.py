"""A Jupyter kernel whose code runs in a Cloche sandbox.

    python -m cloche_jupyter install --language python
"""

from .kernel import ClocheKernel

__version__ = "0.1.0"
__all__ = ["ClocheKernel"]
