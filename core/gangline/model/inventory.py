"""What an operation on the fleet changed, or would change."""

from __future__ import annotations

from gangline.model.base import Wire


class FleetChanges(Wire):
    """What following a fleet file does to nodes, by name.

    `leaving` take no new work and leave when they are idle; `gone` have left. `tenants` says of each tenant
    that came, went or changed what is different, a line each.
    """

    file: str | None = None
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def any(self) -> bool:
        """Whether nodes change."""
        return bool(self.added or self.changed or self.leaving or self.gone)


class Scaled(Wire):
    """What asking a pool for a size does to its nodes, by name.

    `wanted` is None when the pool follows its work again. `added` are asked for and boot, `back` return
    to service, `gone` were idle and have left, `leaving` are held by gangs and leave after them.
    `missing` is how many nodes the pool cannot add now, `kept` how many more it has because others
    took them out of service.
    """

    pool: str
    wanted: int | None = None
    before: int | None = None
    added: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    missing: int = 0
    kept: int = 0
    dry_run: bool = False
