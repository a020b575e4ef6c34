"""`server.json`: how a home tells who serves it, and whether that process still lives."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A running server: its process (pid and kernel start time in clock ticks), address and version."""

    pid: int
    start_time: int
    url: str
    version: str

    @property
    def alive(self) -> bool:
        """Whether that very process still runs; a zombie does not."""
        return process_start(self.pid) == self.start_time


def record_path(home: Path) -> Path:
    return home / "server.json"


def read_record(home: Path) -> ServerRecord | None:
    """What the home says of its server; None when it names none or the file is not whole."""
    try:
        data = json.loads(record_path(home).read_text())
        return ServerRecord(pid=int(data["pid"]), start_time=int(data["start_time"]), url=str(data["url"]),
                            version=str(data["version"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(home: Path, record: ServerRecord) -> None:
    """Publish a server that is ready; readers see the old file or the new one, never a part."""
    temporary = home / f".server.json.{record.pid}"
    temporary.write_text(json.dumps(asdict(record)) + "\n")
    os.replace(temporary, record_path(home))


def remove_record(home: Path, pid: int) -> None:
    """Withdraw the record if it is still that of process `pid`."""
    record = read_record(home)
    if record is not None and record.pid == pid:
        record_path(home).unlink(missing_ok=True)


def process_start(pid: int) -> int | None:
    """When the kernel started process `pid`, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The second field is a command in parentheses that may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
