"""Hosts as they are met, each with the answer that detection must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from host_trees import HostTree, apart, flat, ipv4, rail


@dataclass(frozen=True)
class Expected:
    """What must be said of a host: every finding by its code, the compute NICs by name, in order."""

    profile: str
    verdict: str
    compute: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()  # of some devices that are not for compute


@dataclass(frozen=True)
class Known:
    """A host that can be built."""

    build: Callable[[HostTree], None]
    expected: Expected


def amazon(tree: HostTree, kind: str) -> None:
    tree.dmi(sys_vendor="Amazon EC2", product_name=kind, board_asset_tag="i-0123456789abcdef0")
    tree.modules("efa", "ib_uverbs", "ib_core", "nvidia")
    tree.library("opt/amazon/ofi-nccl/lib/libnccl-net.so")
    tree.library("opt/amazon/efa/lib/libfabric.so.1")


def gpus(tree: HostTree, kind: str, count: int = 8) -> None:
    for number in range(count):
        tree.gpu(kind, rail(number, 0), numa=number * 2 // count)


def p4d(tree: HostTree) -> None:
    amazon(tree, "p4d.24xlarge")
    gpus(tree, "A100")
    for number in range(4):
        tree.efa(f"rdmap{number}s27", rail(number * 2, 1), gbps=100, device="efa0", numa=number // 2)


def p5(tree: HostTree, *, nics: int = 32) -> None:
    amazon(tree, "p5.48xlarge")
    gpus(tree, "H100")
    for number in range(nics):
        tree.efa(f"rdmap{number}s0", rail(number // 4, 1 + number % 4), gbps=100, device="efa1", numa=number // 16)


def p5en_one_missing(tree: HostTree) -> None:
    amazon(tree, "p5en.48xlarge")
    gpus(tree, "H200")
    for number in range(15):
        tree.efa(f"rdmap{number}s0", rail(number // 2, 1 + number % 2), gbps=200, numa=number // 8)


def p6_ten_entries(tree: HostTree) -> None:
    amazon(tree, "p6-b200.48xlarge")
    gpus(tree, "B200")
    for number in range(8):
        tree.efa(f"rdmap{number}s0", rail(number, 1), gbps=400, device="efa3", numa=number // 4)
    for number in (8, 9):
        tree.efa(f"rdmap{number}s0", apart(number), gbps=100, device="efa2")


def no_plugin(tree: HostTree) -> None:
    p5(tree)
    (tree.root / "opt/amazon/ofi-nccl/lib/libnccl-net.so").unlink()


def google(tree: HostTree) -> None:
    tree.dmi(sys_vendor="Google", product_name="Google Compute Engine")


def a3_ultra_sparse(tree: HostTree) -> None:
    """A pod: eight virtual functions whose GID tables begin at 6."""
    google(tree)
    gpus(tree, "H200")
    tree.library("usr/local/gib/lib64/libnccl-net.so")
    for number in range(8):
        table = ((6, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"), (7, ipv4(number), "IB/RoCE v1"),
                 (8, ipv4(number), "RoCE v2"))
        tree.hca(f"mlx5_{number}", rail(number, 1), link="Ethernet", device="101e", gids=table,
                 interface=f"gpu{number}rdma0", vf_of=("pci0000:f0", f"0000:f0:{number:02x}.0"), numa=number // 4)


def a3_mega(tree: HostTree) -> None:
    google(tree)
    gpus(tree, "H100")
    tree.library("usr/local/nvidia/lib64/libnccl-net.so")
    for name in ("dmabuf_import_helper", "aperture_devices/0"):
        tree.write(f"dev/{name}", "")
    tree.interface("eth0x", driver="gve", chain=flat(2))
    for number in range(1, 9):
        tree.interface(f"eth{number}", driver="gve", chain=rail(number - 1, 1), gbps=200)


def a3_mega_broken(tree: HostTree) -> None:
    """One interface is down, one does not tell its speed, one is not there."""
    a3_mega(tree)
    base = "sys/class/net/eth{}/{}"
    tree.write(base.format(3, "operstate"), "down")
    tree.write(base.format(4, "speed"), "-1")
    (tree.root / "sys/class/net/eth8").unlink()
    tree.interface("eth9", driver="gve", chain=flat(9))


def azure(tree: HostTree, kind: str, **port: str) -> None:
    """A virtual machine: buses are hidden, the front interface is a verbs device too."""
    tree.dmi(sys_vendor="Microsoft Corporation", product_name="Virtual Machine",
             chassis_asset_tag="7783-7084-3265-9085-8269-3286-77")
    for number in range(8):
        tree.gpu(kind, (f"pci{number + 1:04x}:00", f"{number + 1:04x}:00:00.0"))
        tree.hca(f"mlx5_ib{number}", (f"pci{number + 0x101:04x}:00", f"{number + 0x101:04x}:00:00.0"),
                 pkeys=("0xffff", "0x8012"), **port)
    tree.hca("mlx5_an0", ("pcif000:00", "f000:00:02.0"), link="Ethernet", gbps=100, gids=(), device="101a",
             interface="enP1s1")
    tree.library("opt/microsoft/ndv5-topo.xml")


def azure_h100(tree: HostTree) -> None:
    azure(tree, "H100")


def azure_all_init(tree: HostTree) -> None:
    azure(tree, "H100", state="2: INIT")


def azure_no_partition(tree: HostTree) -> None:
    azure(tree, "H100")
    for number in range(8):
        tree.write(f"sys/class/infiniband/mlx5_ib{number}/ports/1/pkeys/1", "0x7fff")


def oracle_h100(tree: HostTree) -> None:
    """Two NICs for each GPU, the front one (with the default route) and one for storage."""
    tree.dmi(chassis_asset_tag="OracleCloud.com", sys_vendor="Oracle Corporation")
    gpus(tree, "H100")
    names = [number for number in range(18) if number not in (2, 11)]
    for place, number in enumerate(names):
        tree.hca(f"mlx5_{number}", rail(place // 2, 1 + place % 2), link="Ethernet", gbps=200,
                 interface=f"rdma{place}", numa=place // 8)
    tree.hca("mlx5_2", apart(2), link="Ethernet", gbps=100, interface="ens2")
    tree.hca("mlx5_11", apart(3), link="Ethernet", gbps=200, interface="ens3")
    tree.route("ens2")


def coreweave_ib(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"ibp{number}s0", rail(number, 1), numa=number // 4)


def ipv6_roce(tree: HostTree) -> None:
    """A fabric with unique local IPv6 addresses only."""
    gpus(tree, "GB300", 4)
    for number in range(4):
        table = ((0, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "IB/RoCE v1"),
                 (1, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"),
                 (2, "fd02:0000:0000:0001:0000:0000:0000:{:04x}", "IB/RoCE v1"),
                 (3, "fd02:0000:0000:0001:0000:0000:0000:{:04x}", "RoCE v2"))
        tree.hca(f"rocep{number}s0", rail(number, 1), link="Ethernet", device="1023", gids=table,
                 interface=f"rdma{number}")


def crusoe(tree: HostTree) -> None:
    """Virtual functions of a flat bus, the first of them the front."""
    for number in range(8):
        tree.gpu("H100", flat(0x10 + number))
    for number in range(9):
        tree.hca(f"mlx5_{number}", flat(number + 1), device="101e", gbps=400 if number else 200,
                 link="InfiniBand" if number else "Ethernet", vf_of=("pci0000:f0", "0000:f0:00.0"),
                 interface=None if number else "ens7")
    tree.write("etc/crusoe/nccl_topo/h100.xml", '<system><pci busid="00000000:00:10.0"/></system>')
    tree.write("etc/crusoe/nccl_topo/a100.xml", '<system><pci busid="0000:8A:00.0"/></system>')


def foreign_topology(tree: HostTree) -> None:
    crusoe(tree)
    (tree.root / "etc/crusoe/nccl_topo/h100.xml").unlink()


def bond_25g(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4)
    tree.hca("mlx5_bond_0", apart(8), link="Ethernet", gbps=25, device="1015", interface="ens8f0")
    tree.interface("ens8f1", driver="mlx5_core", chain=apart(8, 1), gbps=25)
    tree.interface("bond0", driver=None, gbps=50, bond="802.3ad 4", over=("ens8f0", "ens8f1"))


def route_over_a_bridge(tree: HostTree) -> None:
    """The front port is a device like the others; the route goes over a bridge on a VLAN on it."""
    for number in range(4):
        tree.hca(f"mlx5_{number}", apart(number + 1), link="Ethernet", interface=f"ens{number}")
    tree.interface("ens0.7", driver=None, over=("ens0",))
    tree.interface("br0", driver=None, over=("ens0.7",))
    tree.route("br0")


def only_a_bond(tree: HostTree) -> None:
    tree.hca("mlx5_bond_0", apart(8), link="Ethernet", gbps=200, interface="ens8f0", mtu=1500)


def bonded_compute(tree: HostTree) -> None:
    """Every compute NIC is a bond of two ports, and a slow one is not."""
    gpus(tree, "H100", 4)
    for number in range(4):
        tree.hca(f"mlx5_bond_{number}", rail(number, 1), link="Ethernet", gbps=400, interface=f"ens{number}")
    tree.hca("mlx5_4", apart(9), link="Ethernet", gbps=25, interface="ens9")


def infiniband_storage(tree: HostTree) -> None:
    """Storage is on an InfiniBand of its own, as fast as the compute network."""
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4)
    tree.hca("mlx5_8", apart(3), numa=0)
    tree.hca("mlx5_9", apart(4), numa=1)


def infiniband_of_some(tree: HostTree) -> None:
    """Only half of the GPUs have a NIC behind their switch: the others use those of their processor."""
    gpus(tree, "H100")
    for number in range(4):
        tree.hca(f"mlx5_{number}", rail(number, 1))
    tree.hca("mlx5_4", apart(3), numa=1)


def blind_port(tree: HostTree) -> None:
    """One device without ports that can be seen."""
    coreweave_ib(tree)
    tree.write("sys/class/infiniband/ibp9s0/fw_ver", "28.42.1000")


def small_instance(tree: HostTree) -> None:
    amazon(tree, "p5.4xlarge")
    tree.gpu("H100", rail(0, 0))
    tree.efa("rdmap0s0", rail(0, 1), gbps=100)


def hdr_among_ndr(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4,
                 **({"gbps": 200, "rate": "200 Gb/sec (4X HDR)"} if number == 5 else {}))


def prefix_trap(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4)
    tree.hca("mlx5_10", apart(9), link="Ethernet", gbps=400, interface="ens9")
    tree.hca("mlx5_11", apart(10), link="Ethernet", gbps=400, interface="ens10")


def vf_without_guid(tree: HostTree) -> None:
    for number in range(2):
        tree.hca(f"mlx5_{number}", flat(4 + number), device="101e", vf_of=("pci0000:f0", f"0000:f0:{number:02x}.0"),
                 guid="0000:0000:0000:0000" if number else None)


def vfs_beside_pf(tree: HostTree) -> None:
    """The host, not the pod: physical function and its virtual functions are all there."""
    tree.hca("mlx5_0", apart(4))
    for number in (1, 2):
        tree.hca(f"mlx5_{number}", apart(4, number), device="101e", vf_of=apart(4))


def numa_unknown(tree: HostTree) -> None:
    for number in range(8):
        tree.gpu("H100", rail(number, 0), numa=-1)
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=-1)


def no_dev(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4)
        (tree.root / f"dev/infiniband/uverbs{number}").unlink()


def half_of_dev(tree: HostTree) -> None:
    no_dev(tree)
    for number in range(4):
        tree.write(f"dev/infiniband/uverbs{number}", "")


def no_counters(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4)
        for name in ("port_xmit_data", "link_downed"):
            (tree.root / f"sys/class/infiniband/mlx5_{number}/ports/1/counters/{name}").write_text("")


def broadcom_ipv6(tree: HostTree) -> None:
    for number in range(8):
        tree.gpu("MI300X", rail(number, 0), vendor="1002", device="74a1", model=False, numa=number // 4)
        table = ((0, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "IB/RoCE v1"),
                 (1, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"),
                 (2, "2001:0db8:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"))
        tree.hca(f"bnxt_re{number}", rail(number, 1), link="Ethernet", vendor="14e4", device="1760", driver="bnxt_en",
                 gids=table, interface=f"ens{number}", numa=number // 4)


def broadcom_link_local(tree: HostTree) -> None:
    broadcom_ipv6(tree)
    for number in range(8):
        base = tree.root / f"sys/class/infiniband/bnxt_re{number}/ports/1"
        (base / "gids/2").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")


def ionic(tree: HostTree) -> None:
    tree.dmi(chassis_asset_tag="OracleCloud.com")
    for number in range(8):
        tree.gpu("MI355X", rail(number, 0), vendor="1002", device="75a3", model=False, numa=number // 4)
        table = ((0, "fe80:0000:0000:0000:0000:0000:0000:{:04x}", "RoCE v2"), (1, ipv4(number), "RoCE v2"))
        tree.hca(f"ionic_{number}", rail(number, 1), link="Ethernet", vendor="1dd8", device="1002", driver="ionic",
                 gids=table, interface=f"rdma{number}", numa=number // 4)


def empty(tree: HostTree) -> None:
    for path in sorted(tree.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def gb200(tree: HostTree, *, channels: int = 1) -> None:
    """GPUs hang on their processors by another link than PCI: NICs and GPUs have root ports of their own."""
    tree.dmi(chassis_asset_tag="OracleCloud.com")
    for number in range(4):
        tree.gpu("GB200", (f"pci{number + 8:04x}:00", f"{number + 8:04x}:00:00.0", f"{number + 8:04x}:01:00.0"),
                 numa=number // 2)
        tree.hca(f"mlx5_{number if number < 2 else number + 1}",
                 (f"pci{number:04x}:00", f"{number:04x}:00:00.0", f"{number:04x}:03:00.0"), link="Ethernet",
                 interface=f"rdma{number}", numa=number // 2)
    tree.hca("mlx5_2", ("pci0006:00", "0006:00:00.0", "0006:03:00.0"), link="Ethernet", gbps=200, interface="eth0f")
    tree.route("eth0f")
    for number in range(channels):
        tree.write(f"dev/nvidia-caps-imex-channels/channel{number}", "")


def gb200_no_channels(tree: HostTree) -> None:
    gb200(tree, channels=0)


def locked(tree: HostTree) -> None:
    coreweave_ib(tree)
    tree.memlock("8388608")


def old_kernel(tree: HostTree) -> None:
    coreweave_ib(tree)
    tree.modules("ib_core", "ib_uverbs", "mlx5_ib", "nvidia")
    tree.write("proc/sys/kernel/osrelease", "5.4.0-generic")


def cable_out(tree: HostTree) -> None:
    gpus(tree, "H100")
    for number in range(8):
        tree.hca(f"mlx5_{number}", rail(number, 1), numa=number // 4,
                 **({"state": "1: DOWN", "phys": "2: Polling", "rate": "10 Gb/sec (4X SDR)"} if number == 3 else {}))


def spare_ports(tree: HostTree) -> None:
    """Cards with two ports of which one is wired."""
    for number in (4, 5):
        tree.hca(f"mlx5_{number}", apart(number))
        tree.hca(f"mlx5_{number + 10}", apart(number, 1), state="1: DOWN", phys="2: Polling", gbps=10)


def garbage(tree: HostTree) -> None:
    """Nothing in it makes sense."""
    tree.hca("mlx5_0", flat(3), state="quark", phys="\x1b[31m", rate="fast", gids=((0, "hello", "world"),))
    tree.write("sys/class/infiniband/mlx5_0/ports/1/link_layer", b"\xff\xfe\x00")
    tree.write("sys/class/infiniband/mlx5_0/device/vendor", "0xzz")
    tree.write("sys/class/infiniband/mlx5_1", "a file, where a directory should be")
    tree.write("proc/self/limits", "Max locked memory         plenty")
    tree.write("proc/net/route", "?\n" * 50)


def names(pattern: str, *numbers: int) -> tuple[str, ...]:
    return tuple(pattern.format(number) for number in numbers)


MLX = names("mlx5_{}:1", *range(8))
IBP = names("ibp{}s0:1", *range(8))
GENERIC = "profile-generic"
TREES: dict[str, Known] = {
    "p4d": Known(p4d, Expected("aws.p4d", "ready", names("rdmap{}s27:1", *range(4)))),
    "p5": Known(p5, Expected("aws.p5", "ready", names("rdmap{}s0:1", *range(32)))),
    "p5 without plugin": Known(no_plugin, Expected(
        "aws.p5", "unusable", names("rdmap{}s0:1", *range(32)), ("library-missing",))),
    "p5en with one missing": Known(p5en_one_missing, Expected(
        "aws.p5en", "degraded", names("rdmap{}s0:1", *range(15)), ("nic-missing",))),
    "p6-b200 with ten entries": Known(p6_ten_entries, Expected(
        "aws.p6-b200", "ready", names("rdmap{}s0:1", *range(8)), (),
        (("rdmap8s0", "other"), ("rdmap9s0", "other")))),
    "a3-ultra pod with sparse GIDs": Known(a3_ultra_sparse, Expected("gcp.a3-ultra", "ready", MLX)),
    "a3-mega without verbs": Known(a3_mega, Expected("gcp.a3-mega", "ready", names("eth{}", *range(1, 9)))),
    "a3-mega with broken interfaces": Known(a3_mega_broken, Expected(
        "gcp.a3-mega", "degraded", names("eth{}", 1, 2, 4, 5, 6, 7), ("nic-missing", "port-down", "rate-unknown"))),
    "azure H100 with accelerated networking": Known(azure_h100, Expected(
        "azure.nd-h100-v5", "ready", names("mlx5_ib{}:1", *range(8)), (), (("mlx5_an0", "management"),))),
    "azure with all ports INIT": Known(azure_all_init, Expected(
        "azure.nd-h100-v5", "unusable", (), ("port-init",) * 8)),
    "azure without a partition": Known(azure_no_partition, Expected(
        "azure.nd-h100-v5", "unusable", names("mlx5_ib{}:1", *range(8)), ("pkey-none",) * 8)),
    "oracle H100, 16 and 2": Known(oracle_h100, Expected(
        "oci.h100", "ready", names("mlx5_{}:1", 0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17),
        ("name-prefix",), (("mlx5_2", "management"), ("mlx5_11", "storage")))),
    "InfiniBand with persistent names": Known(coreweave_ib, Expected("onprem.infiniband", "ready", IBP, (GENERIC,))),
    "RoCE with IPv6 only": Known(ipv6_roce, Expected(
        "onprem.roce", "ready", names("rocep{}s0:1", *range(4)), (GENERIC,))),
    "crusoe virtual functions": Known(crusoe, Expected(
        "crusoe.h100", "ready", names("mlx5_{}:1", *range(1, 9)), (), (("mlx5_0", "management"),))),
    "bond of 25G beside InfiniBand": Known(bond_25g, Expected(
        "onprem.infiniband", "ready", MLX, (GENERIC,), (("mlx5_bond_0", "management"),))),
    "a route over a bridge on a VLAN": Known(route_over_a_bridge, Expected(
        "onprem.roce", "ready", names("mlx5_{}:1", 1, 2, 3), (GENERIC, "gpus-none"), (("mlx5_0", "management"),))),
    "crusoe with another machine's topology": Known(foreign_topology, Expected(
        "crusoe.h100", "degraded", names("mlx5_{}:1", *range(1, 9)), ("topology-foreign",))),
    "nothing but a bond": Known(only_a_bond, Expected(
        "onprem.roce", "ready", ("mlx5_bond_0:1",), (GENERIC, "gpus-none", "mtu-small"))),
    "bonds are the compute NICs": Known(bonded_compute, Expected(
        "onprem.roce", "ready", names("mlx5_bond_{}:1", *range(4)), (GENERIC,), (("mlx5_4", "other"),))),
    "InfiniBand storage beside compute": Known(infiniband_storage, Expected(
        "onprem.infiniband", "ready", MLX, (GENERIC,), (("mlx5_8", "storage"), ("mlx5_9", "storage")))),
    "InfiniBand near some GPUs only": Known(infiniband_of_some, Expected(
        "onprem.infiniband", "ready", names("mlx5_{}:1", *range(5)), (GENERIC,))),
    "a device without ports": Known(blind_port, Expected(
        "onprem.infiniband", "unknown", IBP, (GENERIC, "nic-unknown"))),
    "a small instance": Known(small_instance, Expected("aws.other", "ready", ("rdmap0s0:1",))),
    "one HDR port among NDR": Known(hdr_among_ndr, Expected(
        "onprem.infiniband", "degraded", MLX, (GENERIC, "port-slow"))),
    "mlx5_1 and mlx5_10": Known(prefix_trap, Expected(
        "onprem.infiniband", "ready", MLX, (GENERIC, "links-mixed", "name-prefix"),
        (("mlx5_10", "storage"), ("mlx5_11", "storage")))),
    "virtual function without GUID": Known(vf_without_guid, Expected(
        "onprem.infiniband", "degraded", ("mlx5_0:1",), (GENERIC, "gpus-none", "guid-zero"))),
    "virtual functions beside their physical one": Known(vfs_beside_pf, Expected(
        "onprem.infiniband", "ready", ("mlx5_0:1",), (GENERIC, "gpus-none"),
        (("mlx5_1", "other"), ("mlx5_2", "other")))),
    "NUMA nodes unknown": Known(numa_unknown, Expected("onprem.infiniband", "ready", MLX, (GENERIC,))),
    "sysfs without /dev": Known(no_dev, Expected("onprem.infiniband", "unusable", MLX, (GENERIC, "device-missing"))),
    "sysfs with half of /dev": Known(half_of_dev, Expected(
        "onprem.infiniband", "degraded", MLX, (GENERIC, "device-missing"))),
    "counters that cannot be read": Known(no_counters, Expected(
        "onprem.infiniband", "unknown", MLX, (GENERIC, "counters-unknown", "unread", "unread", "unread", "unread"))),
    "Broadcom with IPv6 only": Known(broadcom_ipv6, Expected(
        "onprem.roce", "ready", names("bnxt_re{}:1", *range(8)), (GENERIC,))),
    "Broadcom with link-local addresses": Known(broadcom_link_local, Expected(
        "onprem.roce", "unusable", (), (GENERIC, *("gid-none",) * 8))),
    "Pollara": Known(ionic, Expected("oci.mi355x", "ready", names("ionic_{}:1", *range(8)), ("profile-unsure",))),
    "empty": Known(empty, Expected(
        "generic", "unusable", (), ("gdr-unknown", "gpus-none", "library-missing", "memlock-unknown",
                                    "modules-unknown", "no-devices", GENERIC, "route-none"))),
    "GB200 with NVLink between nodes": Known(gb200, Expected(
        "oci.gb200", "ready", names("mlx5_{}:1", 0, 1, 3, 4), ("nvlink-unproved",), (("mlx5_2", "management"),))),
    "GB200 without channels": Known(gb200_no_channels, Expected(
        "oci.gb200", "unusable", names("mlx5_{}:1", 0, 1, 3, 4), ("imex-missing", "nvlink-unproved"))),
    "locked memory limited": Known(locked, Expected("onprem.infiniband", "unusable", IBP, (GENERIC, "memlock-low"))),
    "old kernel without peer memory": Known(old_kernel, Expected(
        "onprem.infiniband", "degraded", IBP, (GENERIC, "gdr-none"))),
    "one cable out": Known(cable_out, Expected(
        "onprem.infiniband", "degraded", names("mlx5_{}:1", 0, 1, 2, 4, 5, 6, 7), (GENERIC, "port-down"))),
    "spare ports": Known(spare_ports, Expected(
        "onprem.infiniband", "ready", names("mlx5_{}:1", 4, 5),
        (GENERIC, "gpus-none", "port-down", "port-down"))),
    "garbage": Known(garbage, Expected(
        "generic", "unusable", (), ("gpus-none", "memlock-unknown", "nic-unknown", "nic-unknown", "no-compute", GENERIC,
                                    "route-none", *("unread",) * 4))),
}
