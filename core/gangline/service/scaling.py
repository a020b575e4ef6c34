"""What size a person asks a pool to have, at run time and for good."""

from __future__ import annotations

from dataclasses import replace

from gangline.model.errors import NotFound, Rejected
from gangline.model.fleet import Fleet, Pool
from gangline.model.inventory import Scaled
from gangline.service.backoff import Backoff
from gangline.service.facts import within
from gangline.service.inventory import SCALE_OWNER, scratch
from gangline.service.sizes import bring_back, settle
from gangline.store import Store, Transaction


def scale(store: Store, fleet: Fleet, name: str, wanted: int | None, *, now_ms: int, dry_run: bool = False) -> Scaled:
    """Asks a pool to have so many nodes from now on, whatever its work needs; None lets it follow its work.

    The wish and all that can be done at once are one transaction; the rest is done by `tend` as gangs
    end. Nothing that runs is ended, and a node that a person drained is not touched.

    Raises:
        NotFound: there is no such pool.
        Rejected: the size is not within the pool's min and max.
    """
    found = next((pool for pool in fleet.pools if pool.name == name), None)
    if found is None:
        raise NotFound(f"there is no pool {name}", fix=f"there are {', '.join(pool.name for pool in fleet.pools)}")
    pool = bounded(fleet, found)
    if wanted is not None and not pool.min <= wanted <= pool.most:
        raise Rejected(f"pool {name} has between {pool.min} and {pool.most} nodes, not {wanted}", field="nodes",
                       fix="change min or max in the fleet file, then: gangline fleet reload")
    with scratch(store, dry_run) as tx:
        before = tx.pools.wanted().get(name)
        if before != wanted:
            tx.pools.want(name, wanted, now_ms)
            tx.nodes.stir(name)
            tx.events.add("pool.scaled", now_ms, pool=name, wanted=wanted, before=before)
        done = settle(tx, pool, wanted, now_ms)
        if wanted is None:  # what the file declares is there again
            names = [node.name for node in fleet.all_nodes() if node.pool == name]
            done = replace(done, added=bring_back(tx, pool, names, now_ms))
        return Scaled(pool=name, wanted=wanted, before=before, added=done.added, back=done.back,
                      leaving=done.leaving, gone=done.gone, missing=done.missing, kept=done.kept, dry_run=dry_run)


def limited(tx: Transaction, pool: Pool) -> Pool:
    """The pool with the size it was asked to have, if it was, as its most."""
    wanted = tx.pools.wanted().get(pool.name)
    return pool if wanted is None else pool.model_copy(update={"max": within(pool, wanted)})


def bounded(fleet: Fleet, pool: Pool) -> Pool:
    """The pool with its most written out: without `max` it can be as large as the file declares it."""
    if pool.max is not None:
        return pool
    declared = sum(node.pool == pool.name for node in fleet.nodes)
    return pool.model_copy(update={"max": max(pool.min, declared)})


def keep_sizes(tx: Transaction, fleet: Fleet, backoff: Backoff, now_ms: int) -> None:
    """Brings every pool that was asked for a size nearer to it, as gangs end and nodes fail."""
    wanted = tx.pools.wanted()
    for pool in fleet.pools:
        if pool.name in wanted:
            size = within(bounded(fleet, pool), wanted[pool.name])
            if tx.nodes.staying(pool.name, SCALE_OWNER) != size:
                settle(tx, bounded(fleet, pool), size, now_ms,
                       may_ask=not backoff.holds(pool.name, now_ms))
