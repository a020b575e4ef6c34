"""The environment of one node of a gang: computed lines, the profile's, and the user's over them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gangline.fabric.detection import Detection
from gangline.fabric.environment.computed import computed, placeholders
from gangline.fabric.environment.undoing import undone_by
from gangline.fabric.environment.values import Advice, Environment, Gang, Line, Override
from gangline.fabric.finding import Finding
from gangline.fabric.profiles import Setting

_VERSION = re.compile(r"\d+(?:\.\d+)*")


def environment(found: Detection, gang: Gang) -> Environment:
    """What the ranks of this node get, and why. Pure; computed where the ranks run, so inside the container.

    A user's own value stays, and is told of when it undoes what rdma promises; so does what the image presets
    in /etc/nccl.conf, where it is not a value that has to be ours. Variables a profile wants left alone are
    never set.
    """
    told = list(computed(found, gang))
    lines = [one for one in told if isinstance(one, Line)]
    avoided = {row.name: row.why for row in found.row.avoid}
    lines += [line for line in _from_profile(found, gang) if line.name not in {one.name for one in lines}]
    lines = [line for line in lines if line.name not in avoided]
    overrides = [*_overrides(lines, found, gang), *_others(lines, found, gang)]
    kept = {override.name: override for override in overrides if override.ours is not None}
    return Environment(
        profile=found.profile, lines=tuple(_as_kept(line, kept.get(line.name)) for line in lines),
        overrides=tuple(overrides), left=avoided, findings=tuple(one for one in told if isinstance(one, Finding)),
        advice=tuple(Advice(name=row.name, value=row.value, when=row.when, why=row.why) for row in found.row.env
                     if row.level == "advice"))


def parse_version(text: str) -> tuple[int, ...]:
    """The numbers of a version such as 2.27.3; empty when it is none."""
    match = _VERSION.match(text.strip())
    return tuple(int(part) for part in match[0].split(".")) if match is not None else ()


def _from_profile(found: Detection, gang: Gang) -> Iterator[Line]:
    values = placeholders(found)
    for row in found.row.env:
        names = re.findall(r"\{(\w+)\}", row.value)
        if row.level == "advice" or not _applies(row, gang) or not set(names) <= set(values):
            continue
        value = re.sub(r"\{(\w+)\}", lambda match: values[match[1]], row.value)
        yield Line(name=row.name, value=value, level=row.level, why=row.why, by="profile",
                   source=row.source or "; ".join(found.row.sources))
    if found.topology_file is not None:
        yield Line(name="NCCL_TOPO_FILE", value=f"/{found.topology_file}", level="must", by="detected",
                   why="the virtual bus hides which NIC is near which GPU; this file tells")


def _applies(row: Setting, gang: Gang) -> bool:
    if gang.nccl is None:
        return True  # a version that does not know a variable leaves it alone
    since, before = (parse_version(text) if text else None for text in (row.since, row.before))
    return (since is None or gang.nccl >= since) and (before is None or gang.nccl < before)


def _overrides(lines: list[Line], found: Detection, gang: Gang) -> Iterator[Override]:
    """Own values of variables that we would set."""
    for line in lines:
        own = gang.user.get(line.name)
        preset = found.host.nccl_conf.get(line.name)
        if line.name == "LD_LIBRARY_PATH":
            continue  # the user's directories are in ours
        if own is not None and own != line.value:
            yield _override(line.name, own, line.value, "user", found, line.why)
        elif own is None and preset is not None and preset != line.value and line.level == "tune":
            yield _override(line.name, preset, line.value, "image", found, line.why)


def _others(lines: list[Line], found: Detection, gang: Gang) -> Iterator[Override]:
    """Own values of variables that we do not set: those that undo something, and those best left alone."""
    ours = {line.name for line in lines}
    rows = {row.name: row for row in found.row.avoid}
    for by, values in (("user", gang.user), ("image", found.host.nccl_conf)):
        for name, value in values.items():
            if name in ours or (by == "image" and name in gang.user):
                continue
            undone = undone_by(name, value, found)
            avoid = rows.get(name)
            if undone is not None or avoid is not None:
                harm = avoid is not None and avoid.level == "never"
                text = undone or (f"never set it: {avoid.why}" if harm and avoid else f"better left: {rows[name].why}")
                yield Override(name=name, value=value, by="user" if by == "user" else "image",
                               undoes=undone is not None or harm, text=text)


def _override(name: str, value: str, ours: str, by: str, found: Detection, why: str) -> Override:
    undone = undone_by(name, value, found)
    return Override(name=name, value=value, ours=ours, by="user" if by == "user" else "image",
                    undoes=undone is not None, text=undone or f"in place of {ours} ({why})")


def _as_kept(line: Line, override: Override | None) -> Line:
    if override is None:
        return line
    return line.model_copy(update={"value": override.value, "by": override.by,
                                   "why": f"set by the {override.by}: {override.text}"})
