"""What a machine's fabric is, as text. Pure functions over values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.text import Text

from gangline.cli.output import Lines, fields, table
from gangline.fabric.detection import Detection, Nic
from gangline.fabric.environment import Environment
from gangline.fabric.estimate import Estimate
from gangline.fabric.finding import Finding, Level, Verdict
from gangline.fabric.profiles import Profile

_LEVELS = {Level.FAIL: "red", Level.DEGRADED: "red", Level.UNKNOWN: "magenta", Level.WARN: "yellow", Level.NOTE: "dim"}
_VERDICTS = {Verdict.READY: "green", Verdict.DEGRADED: "yellow", Verdict.UNKNOWN: "magenta", Verdict.UNUSABLE: "red"}
_WIDE = max(len(level) for level in Level)


def detection_lines(found: Detection) -> Lines:
    """The answer first, then the NICs, then what is wrong and how to mend it."""
    lines = fields([
        ("rdma", Text(found.verdict, style=_VERDICTS[found.verdict])),
        ("machine", f"{found.profile} ({found.row.title})"),
        ("because", "; ".join(found.why)),
        ("network", _network(found)),
        ("gpus", f"{found.gpus} ({', '.join(found.gpu_types) or 'type unknown'})" if found.gpus else "none visible"),
        ("gpudirect", found.gpu_direct or "no way found"),
        ("firmware", ", ".join(sorted(_firmware(found)))),
        ("topology", f"/{found.topology_file}" if found.topology_file else ""),
        ("meets on", found.socket_interface or "no default route"),
    ])
    if found.nics:
        lines += [Text(), *_nics(found)]
    if found.findings:
        lines += [Text(), *finding_lines(found.findings)]
    lines += [Text(), Text("Nothing was sent: what is ready here is not proved yet.", style="dim")]
    return lines


def finding_lines(findings: Iterable[Finding]) -> Lines:
    """One finding a line, with what to do beneath; those that say the same of several places together."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for one in findings:
        groups.setdefault((one.level, one.code, one.text, one.fix), []).append(one.where)
    lines: Lines = []
    for (level, code, text, fix), places in groups.items():
        where = ", ".join(filter(None, places[:8])) + (f" and {len(places) - 8} more" if len(places) > 8 else "")
        lines.append(Text.assemble((level.ljust(_WIDE), _LEVELS[Level(level)]), "  ", f"{where}: " if where else "",
                                   text, (f"  [{code}]", "dim")))
        if fix:
            lines.append(Text(f"{'':{_WIDE}}  fix: {fix}", style="dim"))
    return lines


def environment_lines(env: Environment, found: Detection) -> Lines:
    """Each variable with its reason, then what was overridden, then what may help in some cases."""
    lines = [Text(f"# {env.profile}: {found.row.title}; {len(found.compute)} compute NICs", style="dim"),
             Text(f"# checked {found.row.checked} against: {_sources(found.row)}", style="dim")]
    for line in env.lines:
        style = "yellow" if line.by in ("user", "image") else "bold"
        lines.append(Text.assemble((f"{line.name}={line.value}", style)))
        lines.append(Text(f"    {line.level}, {line.by}: {line.why}", style="dim"))
    for override in env.overrides:
        mark = ("undone", "red") if override.undoes else ("yours", "yellow")
        lines.append(Text.assemble(mark, f"  {override.name}={override.value} ({override.by}): {override.text}"))
    lines += finding_lines([*env.findings, *(one for one in found.findings if one.level is Level.FAIL)])
    for advice in env.advice:
        lines.append(Text(f"# maybe {advice.name}={advice.value}, when {advice.when}: {advice.why}", style="dim"))
    return lines


def export_lines(env: Environment) -> Lines:
    """Lines for a shell to evaluate. All values are quoted: zsh would expand one that begins with =."""
    return [Text(f"export {line.name}={_quoted(line.value)}") for line in env.lines]


def _quoted(value: str) -> str:
    quoted = shlex.quote(value)
    return quoted if quoted != value else f"'{value}'"


def profile_list(profiles: Sequence[Profile]) -> Lines:
    """One profile a line."""
    rows = [(row.name, ", ".join(row.gpu_types) or "any", row.kind or "any", _nic_text(row), row.network,
             "yes" if row.match is not None else "by name", row.checked, row.title) for row in profiles]
    return table(("PROFILE", "GPUS", "KIND", "NICS", "NCCL_NET", "FOUND", "CHECKED", "MACHINES"), rows)


def profile_lines(row: Profile) -> Lines:
    """Everything that is known of one kind of machine."""
    lines = fields([
        ("profile", row.name), ("machines", row.title), ("kind", row.kind or "as the ports say"),
        ("gpus", f"{row.gpus} x {' or '.join(row.gpu_types)}" if row.gpus else ""), ("nics", _nic_text(row)),
        ("NCCL_NET", row.network + (f" (or {', '.join(row.accepts)})" if row.accepts else "")),
        ("libraries", "; ".join(f"{library.file}: {library.why}" for library in row.libraries)),
        ("devices", ", ".join(row.devices)), ("modules", ", ".join(row.modules)),
        ("capabilities", ", ".join(row.capabilities)),
        ("ulimits", ", ".join(f"{name} {limit}" for name, limit in row.ulimits.items())),
        ("huge pages", f"{row.hugepages_2mib} of 2 MiB" if row.hugepages_2mib else ""),
        ("topology", ", ".join(f"/{path}" for path in row.topology_files)), ("daemons", ", ".join(row.daemons)),
        ("resources", ", ".join(f"{name}: {count}" for name, count in row.kubernetes.resources.items())),
    ])
    lines += [Text(), *table(("VARIABLE", "VALUE", "LEVEL", "WHY"), [
        (one.name, one.value, one.level, one.why + (f"; when {one.when}" if one.when else "")) for one in row.env])]
    if row.avoid:
        lines += [Text(), *table(("NOT TO BE SET", "", "WHY"), [(one.name, one.level, one.why) for one in row.avoid])]
    lines += [Text(), *(Text(f"note: {note}") for note in (*row.notes, *row.kubernetes.notes))]
    lines += [Text(f"unsure: {text}", style="yellow") for text in row.unsure]
    lines.append(Text(f"checked {row.checked} against: {_sources(row)}", style="dim"))
    return lines


def estimate_lines(size_bytes: float, nodes: int, made: Sequence[Estimate]) -> Lines:
    """One way a line. With several nodes, one column for each way to spread the bytes."""
    several = nodes > 1
    needed = any(one.needed_efficiency is not None for one in made)
    headers = ["WAY", "GBPS", "LINE RATE", "ASSUMED", *(
        ("ONE SOURCE", "CHAIN", "TREE", "SOURCES FOR ALL", f"1/{nodes} EACH") if several else ("TIME",)),
        *(("NEEDED",) if needed else ())]
    rows = []
    for one in made:
        spread = ((one.one_source_s, one.chain_s, one.tree_s, one.sources_s, one.sharded_s) if several
                  else (one.sources_s,))
        rows.append([one.way.name, f"{one.way.gbps:g}", seconds_text(one.line_rate_s), f"{one.way.efficiency:.0%}",
                     *map(seconds_text, spread), *((_share(one.needed_efficiency),) if needed else ())])
    to = f" to {nodes} nodes" if several else ""
    return [Text(f"{size_bytes / 1e9:.2f} GB{to}; arithmetic, nothing is measured", style="dim"), *table(headers, rows)]


def seconds_text(seconds: float) -> str:
    """A time with three or four digits that count."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.1f} s"


def _share(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}" if share <= 1 else f"{share:,.0%}: impossible"


def _network(found: Detection) -> str:
    compute = found.compute
    expected = found.row.nics
    rate = f", {found.gbps:g} Gbps together" if found.gbps is not None else ""
    of = f" of {expected}" if expected is not None and expected != len(compute) else ""
    return f"{found.kind or 'unknown kind'}: {len(compute)}{of} compute NICs{rate}"


def _sources(row: Profile) -> str:
    return "; ".join(row.sources) or "nothing (no source was found)"


def _firmware(found: Detection) -> set[str]:
    compute = {nic.device for nic in found.compute}
    return {hca.firmware for hca in found.host.hcas if hca.name in compute and hca.firmware is not None}


def _nics(found: Detection) -> Lines:
    rows = [(nic.name, (nic.kind or "?") + (" vf" if nic.vf else ""),
             Text(nic.role, style="green" if nic.role == "compute" else ""),
             Text("up" if nic.up else "down", style="green" if nic.up else "red"),
             f"{nic.gbps:g}" if nic.gbps is not None else "?", nic.pci or "?",
             "?" if nic.numa_node is None else str(nic.numa_node), _to_gpus(nic, found),
             str(nic.gid.index) if nic.gid is not None else "", ", ".join(nic.interfaces), nic.why)
            for nic in found.nics]
    return table(("PORT", "KIND", "ROLE", "STATE", "GBPS", "PCI", "NUMA", "TO GPU", "GID", "INTERFACE", "WHY"), rows)


def _to_gpus(nic: Nic, found: Detection) -> str:
    """How near, and to which GPUs when they are few: PIX 3."""
    slots = [gpu.pci for gpu in found.host.gpus]
    numbers = [str(slots.index(slot)) for slot in nic.near if slot in slots]
    return f"{nic.distance or '?'} {','.join(numbers) if len(numbers) <= 2 else ''}".rstrip()


def _nic_text(row: Profile) -> str:
    if row.nics is None:
        return "as found"
    return f"{row.nics} x {row.nic_gbps} Gbps" if row.nic_gbps is not None else f"{row.nics}, rate as found"
