"""Rows of text files, plain or gzip, whose every error names file, line and what to write instead."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gangline.model.errors import NotFound, Rejected

MAX_DURATION_S = 1e9  # about 30 years: more is a unit mistaken for another


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table with named columns."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def wrong(self, message: str, fix: str) -> Rejected:
        """The error that this row is."""
        return Rejected(message, field=f"{self.path} line {self.line}", fix=fix)

    def text(self, column: str) -> str:
        """The cell without the spaces around it; "" when it is empty or there is no such column."""
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> float:
        """A number that is there and finite."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(f"{column} is {text!r}, not a number", "correct or remove the row")
        return value

    def count(self, column: str) -> int:
        """A whole number of at least 1; "8.0" is one too."""
        value = self.number(column)
        if value < 1 or value != int(value):
            raise self.wrong(f"{column} is {self.text(column)!r}, not a whole number of at least 1",
                             "correct or remove the row")
        return int(value)

    def span_ms(self, column: str) -> int:
        """A number of seconds that is not negative, as milliseconds."""
        value = self.number(column)
        if not 0 <= value <= MAX_DURATION_S:
            raise self.wrong(f"{column} is {self.text(column)!r}, which is no number of seconds from 0 to 1e9",
                             "give seconds")
        return round(value * 1000)


@contextmanager
def reading(path: Path) -> Iterator[IO[str]]:
    """The text of a file, unpacked when its name ends in .gz.

    Raises:
        NotFound: there is no such file.
        Rejected: it cannot be read or holds no text.
    """
    try:
        opened = gzip.open(path, "rt", encoding="utf-8-sig", newline="") if path.suffix == ".gz" \
            else open(path, encoding="utf-8-sig", newline="")  # noqa: SIM115 - closed below
        with opened as file:
            yield file
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
    except UnicodeDecodeError:
        raise Rejected(f"{path} is not text",
                       fix="give a file in UTF-8, or one packed with gzip and named .gz") from None
    except (EOFError, OSError) as exc:
        raise Rejected(f"cannot read {path}: {getattr(exc, 'strerror', None) or exc}") from None


def csv_rows(path: Path, needed: tuple[str, ...], known: tuple[str, ...] | None = None) -> Iterator[Row]:
    """The rows of a CSV file with a header.

    Raises:
        Rejected: a needed column is missing, one is not known (when `known` says which are), or a row
            has more or fewer cells than the header.
    """
    with reading(path) as file:
        lines = csv.reader(file)
        try:
            header = [name.strip() for name in next(lines, [])]
            _check_header(path, header, needed, known)
            for cells in lines:
                if not cells:
                    continue
                row = Row(path, lines.line_num, dict(zip(header, cells, strict=False)))
                if len(cells) != len(header):
                    raise row.wrong(f"has {len(cells)} cells under a header of {len(header)}",
                                    "correct or remove the row")
                yield row
        except csv.Error as exc:
            raise Rejected(str(exc), field=f"{path} line {lines.line_num}", fix="give a CSV file") from None


def _check_header(path: Path, header: list[str], needed: tuple[str, ...],
                  known: tuple[str, ...] | None) -> None:
    missing = [name for name in needed if name not in header]
    if missing:
        raise Rejected(f"has no column {', '.join(missing)}", field=f"{path} line 1",
                       fix=f"a header needs at least {','.join(needed)}")
    strange = [name for name in header if known is not None and name not in known]
    if strange:
        raise Rejected(f"column {strange[0]!r} is not known", field=f"{path} line 1",
                       fix=f"the columns are {','.join(known or ())}")
