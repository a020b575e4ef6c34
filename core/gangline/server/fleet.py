"""The fleet a server starts with: a file's, or this machine as one real node."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from gangline.fabric.products import gpu_type
from gangline.model.errors import Rejected
from gangline.model.fleet import Fleet, Pool

SMI_S = 20.0
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, and fleets are long


def find_fleet(home: Path, given: Path | None) -> tuple[str | None, Fleet]:
    """The fleet file given, else the home's, else this machine; and where it came from."""
    own = home / "fleet.yaml"
    path = given or (own if own.exists() else None)
    if path is None:
        return None, this_machine(os.environ)
    path = Path(os.path.abspath(path))
    return str(path), load_fleet(path)


def load_fleet(path: Path) -> Fleet:
    """The fleet a file declares; `Rejected` naming the file, the field and what it should be."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise Rejected(f"cannot read {path}: {why}", field="fleet",
                       fix="write one with: gangline fleet init") from None
    return parse_fleet(text, str(path))


def parse_fleet(text: str, path: str) -> Fleet:
    """The fleet in the text of a file; `Rejected` as by `load_fleet`."""
    try:
        data = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe one
    except yaml.YAMLError as exc:
        raise Rejected(f"{path} is not YAML: " + " ".join(str(exc).split()), field="fleet") from None
    if not isinstance(data, dict):
        raise Rejected(f"{path} is not a fleet: expected `pools:` at the top", field="fleet",
                       fix="write one with: gangline fleet init")
    return Fleet.parse(data, where=path)


def this_machine(environ: Mapping[str, str]) -> Fleet:
    """One real node: the GPUs of this machine, or its processors when it has none."""
    return Fleet(pools=(Pool(name="local", gpu=detect_gpus(environ) or _processors(), min=1, max=1),))


def _processors() -> str:
    return f"cpu:{len(os.sched_getaffinity(0))}"


def detect_gpus(environ: Mapping[str, str], proc: Path = Path("/proc/driver/nvidia/gpus")) -> str | None:
    """The GPUs this machine offers, such as "H100:8"; None when it has none or hides them.

    CUDA_VISIBLE_DEVICES set to nothing or -1 hides them all. A machine with several models offers
    the most frequent one.
    """
    if environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return None
    models = _models_by_smi() or _models_by_proc(proc)
    if not models:
        return None
    model, count = Counter(map(gpu_type, models)).most_common(1)[0]
    return f"{model}:{count}"


def _models_by_smi() -> list[str]:
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=SMI_S,
                                check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    # MIG slices are listed indented below their GPU.
    return re.findall(r"^GPU \d+: (.+?) \(UUID", listed.stdout, re.MULTILINE)


def _models_by_proc(proc: Path) -> list[str]:
    models = []
    for info in sorted(proc.glob("*/information")):
        match = re.search(r"^Model:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE)
        models.append(match[1].strip() if match else "GPU")
    return models
