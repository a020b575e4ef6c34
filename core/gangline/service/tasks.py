"""Orders of a node, derived from the attempts that have members on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gangline.model.base import sha256_of
from gangline.model.gpu import CPU
from gangline.model.orders import MountOrder, Order, OrderPhase, Orders, RankOrder, Task
from gangline.model.spec import Role
from gangline.model.states import Phase
from gangline.store import Attempt, Gang, Member, Rank, Transaction


def orders_of(tx: Transaction, members: tuple[Member, ...], volumes_root: Path) -> Orders:
    """What should be going on for each of the members now; the same picture gives the same digest."""
    orders = tuple(_order(tx, member, volumes_root) for member in members)
    return Orders(digest=sha256_of([order.full() for order in orders]), orders=orders)


def _order(tx: Transaction, member: Member, volumes_root: Path) -> Order:
    gang = tx.gangs.get(member.gang)
    attempt = tx.attempts.get(member.gang, member.attempt)
    about = {"gang": gang.id, "attempt": attempt.number, "generation": gang.generation}
    if member.lost or attempt.phase in (Phase.DRAINING, Phase.COMMITTING):
        grace_s = 0.0 if member.lost else attempt.grace_ms / 1000
        return Order(**about, phase=OrderPhase.STOP, grace_s=grace_s)
    phase = OrderPhase.ASSEMBLE if attempt.phase is Phase.ASSEMBLING else OrderPhase.START
    members = tx.attempts.members(gang.id, attempt.number)
    if attempt.pool is not None and any(other.incarnation is None for other in members):
        return Order(**about, phase=phase)  # where the others are, is known when all supervisors have come
    return Order(**about, phase=phase, task=_task(tx, gang, attempt, member, members, volumes_root))


def _task(tx: Transaction, gang: Gang, attempt: Attempt, member: Member, members: Sequence[Member],
          volumes_root: Path) -> Task:
    spec, role = gang.spec, dict(gang.spec.role_items())[member.role]
    ranks = tx.attempts.ranks(gang.id, attempt.number)
    by_node: list[list[Rank]] = [[] for _ in members]
    for rank in ranks:
        by_node[rank.node_rank].append(rank)
    return Task(
        name=gang.name, slot=gang.slot, tenant=gang.tenant, role=member.role,
        command=role.command, function=role.function, args=role.args, env=_env(spec.env, role),
        interpreter=spec.interpreter or gang.interpreter, snapshot=gang.snapshot,
        node_rank=member.node_rank, ranks=_ranks(member, by_node[member.node_rank]),
        world_size=attempt.world_size, least=spec.nodes, most=spec.most,
        nodes=tuple(other.share for other in members),
        ranks_by_node=tuple(tuple(rank.rank for rank in group) for group in by_node),
        master_addr=attempt.master_addr, master_port=attempt.master_port,
        mounts=_mounts(tx, gang, attempt, volumes_root), fabric=attempt.fabric, zone=attempt.zone,
        rdma=attempt.rdma, emulated=attempt.emulated)


def _env(shared: dict[str, str], role: Role) -> dict[str, str]:
    return {**shared, **role.env}


def _ranks(member: Member, ranks: list[Rank]) -> tuple[RankOrder, ...]:
    gpus = () if member.gpu_type == CPU else member.gpus
    each, left = divmod(len(gpus), len(ranks))
    if each and not left:
        parts = [gpus[i * each:(i + 1) * each] for i in range(len(ranks))]
    else:  # no fair split: every rank sees all of them
        parts = [gpus for _ in ranks]
    return tuple(RankOrder(rank=rank.rank, local_rank=rank.local_rank, gpus=part)
                 for rank, part in zip(ranks, parts, strict=True))


def _mounts(tx: Transaction, gang: Gang, attempt: Attempt, volumes_root: Path) -> tuple[MountOrder, ...]:
    resumes = {chosen.mount: chosen.version for chosen in attempt.resume}
    mounts = []
    for mount, where in gang.spec.volumes.items():
        root = str(volumes_root / where.volume)
        if mount in resumes:
            version = tx.versions.get(where.volume, resumes[mount])
            mounts.append(MountOrder(mount=mount, volume=where.volume, root=root, resume=version.version,
                                     resume_dir=version.directory, manifest_sha256=version.manifest_sha256))
        else:
            mounts.append(MountOrder(mount=mount, volume=where.volume, root=root))
    return tuple(mounts)
