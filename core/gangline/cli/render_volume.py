"""Volumes and their versions as text. Pure functions over views."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from gangline.cli.output import Lines, ago, size_text, table
from gangline.model.volume import VersionView, VolumeView


def volume_list(volumes: Sequence[VolumeView], now_ms: int) -> Lines:
    """One volume a line."""
    if not volumes:
        return [Text("no volumes")]
    rows = []
    for v in volumes:
        newest = v.versions[0] if v.versions else None
        names = ", ".join(f"{p.name}={p.version}" for p in v.names)
        rows.append((v.volume, str(len(v.versions)), f"{v.volume}@{newest.version}" if newest else "",
                     ago(newest.created_ms, now_ms) if newest else "",
                     size_text(sum(x.bytes for x in v.versions)), names))
    return table(("VOLUME", "VERSIONS", "NEWEST", "COMMITTED", "SIZE", "NAMES"), rows)


def volume_details(volume: VolumeView, now_ms: int) -> Lines:
    """A volume's versions, newest first, with who committed them."""
    lines = [Text.assemble((volume.volume, "bold"), f"  {volume.root}")]
    if not volume.versions:
        return [*lines, Text("  no versions")]
    names: dict[int, list[str]] = {}
    for pointer in volume.names:
        names.setdefault(pointer.version, []).append(pointer.name)
    rows = [(f"{volume.volume}@{v.version}", "" if v.step is None else str(v.step), metrics_text(v),
             size_text(v.bytes), str(v.files), ago(v.created_ms, now_ms), v.gang or "", v.slot or "",
             ", ".join(names.get(v.version, ())),
             Text(f"damaged: {v.damaged}", style="red") if v.damaged else "")
            for v in volume.versions]
    headers = ("VERSION", "STEP", "METRICS", "SIZE", "FILES", "COMMITTED", "GANG", "SLOT", "NAMES", "")
    return lines + table(headers, rows, indent="  ")


def metrics_text(version: VersionView) -> str:
    """What the writer measured: loss 1.9, accuracy 0.8."""
    return ", ".join(f"{name} {value:.4g}" for name, value in sorted(version.metrics.items()))
