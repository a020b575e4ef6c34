"""Reading one host, all of it, once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangline.fabric.host import links, machine, verbs
from gangline.fabric.host.tree import Tree
from gangline.fabric.host.values import Host


def observe(root: Path | str = "/", *, wanted: Iterable[str] = ()) -> Host:
    """What the files beneath `root` say. `wanted` are patterns of files that only need to be there.

    Never raises for what it reads: missing files leave fields empty, and those that are there but cannot
    be read or make no sense are listed in `unread`. Nothing is written, no device is opened.
    """
    tree = Tree(Path(root))
    kernel = tree.text("proc/sys/kernel/osrelease")
    found = dict.fromkeys(path for pattern in wanted for path in tree.matching(pattern))
    return Host(
        root=str(root), dmi=machine.read_dmi(tree), kernel=kernel, modules=machine.read_modules(tree),
        memlock=machine.read_memlock(tree), capabilities=machine.read_capabilities(tree),
        hugepages_2mib=tree.number("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
        gpu_driver=machine.read_gpu_driver(tree), peer_memory_clients=machine.read_peer_memory_clients(tree),
        imex_channels=machine.read_imex_channels(tree), nccl_conf=machine.read_nccl_conf(tree),
        hcas=verbs.read_hcas(tree), interfaces=links.read_interfaces(tree), gpus=machine.read_gpus(tree),
        present=tuple(found), topology_slots=machine.read_topology_slots(tree, found), unread=tuple(tree.unread))
