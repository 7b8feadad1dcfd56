"""python3 src/interpreter/python/cloche_kernel"""
import os
import sys

if __package__ in (None, ""):
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cloche_kernel import kernel

if sys.path[0] == os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    sys.path.pop(0)
kernel.main()
