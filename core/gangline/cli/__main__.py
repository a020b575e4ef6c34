"""`python -m gangline.cli`."""

from __future__ import annotations

from gangline.cli import main

main()
