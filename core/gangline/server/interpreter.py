"""How a server's interpreter is shared: passes over a big fleet beside requests that must not wait."""

from __future__ import annotations

import gc
import sys

SWITCH_S = 0.0001
"""How long a thread keeps the interpreter while others want it. A request gives it up at every statement of the
database, some fifty times; with Python's default of 5 ms a pass would make each of these a pause."""

YOUNG, MIDDLE, OLD = 5_000, 10, 1_000
"""After how many new objects, and how many collections of those, Python's collector looks at more. Python's
defaults (700, 10, 10) look at everything every few passes: half a second for a hundred thousand waiting gangs,
with nothing found, for next to everything here is freed without the collector."""


def share_fairly() -> None:
    """Sets up this process as a server: a pass gives way to requests, and nothing stops both for long."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(YOUNG, MIDDLE, OLD)
