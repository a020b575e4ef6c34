"""What one fleet file says of tenants and another does not."""

from __future__ import annotations

from collections.abc import Iterator

from gangline.model.fleet import Fleet, Tenant


def tenant_changes(old: Fleet, new: Fleet) -> tuple[str, ...]:
    """A line for each tenant that comes, goes or has other numbers: "research: quota of H100 64 -> 32"."""
    before = {tenant.name: tenant for tenant in old.tenants}
    after = {tenant.name: tenant for tenant in new.tenants}
    lines = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            lines.append(f"{name}: no longer declared")
        elif name not in before:
            lines.append(", ".join((f"{name}: new", *_differences(Tenant(name=name), after[name]))))
        elif changed := list(_differences(before[name], after[name])):
            lines.append(f"{name}: {', '.join(changed)}")
    return tuple(lines)


def _differences(old: Tenant, new: Tenant) -> Iterator[str]:
    for kind in sorted(old.quota.keys() | new.quota.keys()):
        if old.quota.get(kind) != new.quota.get(kind):
            yield f"quota of {kind} {_number(old.quota.get(kind))} -> {_number(new.quota.get(kind))}"
    if old.weight != new.weight:
        yield f"weight {old.weight} -> {new.weight}"
    if old.cohort != new.cohort:
        yield f"cohort {old.cohort or 'none'} -> {new.cohort or 'none'}"
    if old.borrow != new.borrow:
        yield f"borrow {_number(old.borrow)} -> {_number(new.borrow)}"


def _number(most: int | None) -> str:
    return "no limit" if most is None else str(most)
