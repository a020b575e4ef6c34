"""Slurm, driven by its own command line programs: one job per attempt, one supervisor per node."""

from gangline.engines.slurm.engine import SlurmEngine

__all__ = ["SlurmEngine"]
