"""httpx without its command line.

Importing httpx also imports its own terminal program, and with that rich, click and pygments: more
than half of the time, in every short-lived process of a pipeline. A halted import is a case httpx
provides for, and the program stays importable by itself afterwards.
"""

from __future__ import annotations

import sys

_PROGRAM = "httpx._main"
_first = "httpx" not in sys.modules and _PROGRAM not in sys.modules

if _first:
    sys.modules[_PROGRAM] = None  # type: ignore[assignment]
try:
    import httpx
finally:
    if _first:
        del sys.modules[_PROGRAM]

__all__ = ["httpx"]
