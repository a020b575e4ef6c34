"""`rdma diagnose`: what logs prove of a gang's RDMA, what went wrong first, and what to do."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from gangline.cli.app import as_json
from gangline.cli.output import show, show_json
from gangline.cli.render_diagnosis import diagnosis_json, diagnosis_lines
from gangline.fabric.logs import Diagnosis
from gangline.model.errors import Rejected

NOT_PROVED = 1
_PIECE_BYTES = 1 << 20
_AUTO = re.compile(r"(?:^|[^a-z])rank[-_.]?(\d{1,7})(?=\D|$)|(?:^|[^a-z0-9])r(\d{1,7})(?=[^\d/][^/]*$|$)|"
                   r"attempt_\d+/(\d{1,7})/std(?:out|err)", re.IGNORECASE)

RankOf = Callable[[str], int | None]


@click.command("diagnose")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...",
                type=click.Path(path_type=Path, allow_dash=True))
@click.option("--rank", "rank_pattern", metavar="REGEX", default="auto", show_default=True,
              help="Finds the rank in a file's path, by its one group; auto knows rank3.log, rank-3/…, r3.err and "
              "torchrun's attempt_0/3/stderr.log, and else goes by what each line says.")
@as_json
def diagnose(logs: tuple[Path, ...], rank_pattern: str, as_json: bool) -> None:
    """Say whether a gang's traffic was RDMA, what went wrong first, and what to do.

    LOG is what ranks printed with NCCL_DEBUG=INFO: files, folders of files, or - for standard input; one per rank
    or many ranks in one; plain, coloured, or wrapped by docker, Kubernetes or a JSON logger; of any size.

    \b
    Examples:
      gangline rdma diagnose logs/rank*.log
      gangline rdma diagnose --rank 'node-(\\d+)' run/node-*/out.txt
      kubectl logs job/train --all-pods --prefix=false | gangline rdma diagnose -

    Exit status: 0 every rank proved and nothing failed, 1 not proved or something failed, 2 bad input.
    """
    diagnosis = Diagnosis()
    rank_of = _rank_of(rank_pattern)
    for name, stream in _streams(logs):
        rank = None if name == "-" else rank_of(name)
        try:
            while piece := stream.read(_PIECE_BYTES):
                diagnosis.feed(rank, piece, source=name)
        except OSError as exc:
            raise _unreadable(name, exc) from None
        diagnosis.end(rank, source=name)
    verdict = diagnosis.verdict()
    if as_json:
        show_json(diagnosis_json(verdict))
    else:
        show(diagnosis_lines(verdict))
    if not verdict.ok:
        click.get_current_context().exit(NOT_PROVED)


def _rank_of(pattern: str) -> RankOf:
    if pattern == "auto":
        return lambda name: _number(next(reversed(list(_AUTO.finditer(name))), None))  # nearest to the file
    try:
        compiled = re.compile(pattern)
    except re.error as exc:
        raise Rejected(f"is not a regular expression: {exc}", field="--rank", fix="quote it, escape brackets") from None
    if compiled.groups != 1:
        raise Rejected(f"has {compiled.groups} groups, not one", field="--rank", fix="put the rank's digits in ( )")
    return lambda name: _number(compiled.search(name))


def _number(found: re.Match[str] | None) -> int | None:
    digits = next((group for group in found.groups() if group), None) if found else None
    return int(digits) if digits is not None and digits.isascii() and digits.isdigit() and len(digits) <= 7 else None


def _streams(logs: tuple[Path, ...]) -> Iterator[tuple[str, BinaryIO]]:
    if logs.count(Path("-")) > 1:
        raise Rejected("- is given twice", field="LOG", fix="give standard input once")
    for path in logs:
        if str(path) == "-":
            yield "-", sys.stdin.buffer
            continue
        for file in _files(path):
            try:
                with open(file, "rb") as stream:
                    yield str(file), stream
            except OSError as exc:
                raise _unreadable(str(file), exc) from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.is_file())
    if not files:
        raise Rejected(f"{path} has no files in it", field="LOG", fix="check the path")
    return files


def _unreadable(name: str, exc: OSError) -> Rejected:
    return Rejected(f"cannot read {name}: {exc.strerror}", field="LOG", fix="check the path")
