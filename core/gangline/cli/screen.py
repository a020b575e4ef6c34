"""A terminal that scrolls lines above one line kept in place; anywhere else, plain lines."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from gangline.cli.output import stderr, stdout


class Screen:
    """Logs go to `logs`, news to stderr. The line in place is on stderr, when that is a terminal."""

    def __init__(self, *, logs_to_stderr: bool = False) -> None:
        self._logs = stderr() if logs_to_stderr else stdout()
        self._news = stderr()
        self._live = self._news.is_terminal
        self._shown = False

    @property
    def live(self) -> bool:
        """Whether a line can be kept in place."""
        return self._live

    def log(self, line: Text) -> None:
        """Print a line of a rank's log."""
        self._print(self._logs, line)

    def say(self, text: str) -> None:
        """Print a line about the gang."""
        self._print(self._news, Text(text, style="dim"))

    def keep(self, line: Text) -> None:
        """Replace the line in place."""
        if not self._live:
            return
        line = line.copy()
        line.truncate(max(10, self._news.width - 1), overflow="ellipsis")
        self._erase()
        self._news.print(line, end="")
        self._news.file.flush()
        self._shown = True

    def close(self) -> None:
        """Leave no line behind."""
        self._erase()

    def _print(self, console: Console, line: Text) -> None:
        self._erase()
        console.print(line)
        console.file.flush()

    def _erase(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._shown = False
