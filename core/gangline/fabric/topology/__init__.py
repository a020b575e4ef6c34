"""Where nodes hang, read from what Slurm, Topograph and Kubernetes say of it."""

from gangline.fabric.topology.reading import FORMATS, combine, read_topology
from gangline.fabric.topology.values import Finding, Place, Topology

__all__ = ["FORMATS", "Finding", "Place", "Topology", "combine", "read_topology"]
