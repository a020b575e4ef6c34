"""The `gangline` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the installed command."""
    from gangline.cli.app import run_cli

    sys.exit(run_cli())
