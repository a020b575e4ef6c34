"""How needs and constraints read in one line."""

from __future__ import annotations

from collections.abc import Sequence

from gangline.plan.snapshot import PendingGang, RoleNeed

MOST_NAMED = 3


def asks_text(role: RoleNeed) -> str:
    """"H200:8 or H100:8"."""
    return " or ".join(str(ask) for ask in role.asks)


def need_text(gang: PendingGang) -> str:
    """"4 x H100:8 on one fabric", "trainer 4 x H100:8 + rollout 2 x cpu in zone zone-1"."""
    roles = [f"{role.name} {role.size} x {asks_text(role)}".strip() for role in gang.roles]
    return " + ".join(roles) + constraint_text(gang)


def constraint_text(gang: PendingGang, *, network: bool = True) -> str:
    """" on one fabric of pool p in zone z", as far as the gang says so; "" when it says nothing."""
    words = []
    if network and gang.nodes > 1 and (gang.within or gang.rdma):
        words.append(f"on one {gang.within or 'fabric'}")
    elif network and gang.rdma:
        words.append("with rdma")
    if gang.pool:
        words.append(f"of pool {gang.pool}")
    if gang.zone:
        words.append(f"in zone {gang.zone}")
    return "".join(f" {word}" for word in words)


def role_field(role: RoleNeed, field: str) -> str:
    """The field of the gang's spec: "size", or "roles.trainer.size" when it has roles."""
    return f"roles.{role.name}.{field}" if role.name else field


def some(names: Sequence[str], many: int) -> str:
    """The first names and how many more of `many` there are: "a, b, c and 2 more"."""
    more = many - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def nodes_text(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def verb(count: int) -> str:
    return "is" if count == 1 else "are"
