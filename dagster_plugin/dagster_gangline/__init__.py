"""Gangline for Dagster: run gangs of GPU nodes as ops and assets.

`GanglineResource` is a thin translation over `gangline.client`: it names the step's slot, follows the
gang while the step runs, and turns what it left behind into metadata. Submission, retries and repair
are the server's.
"""

from importlib.metadata import PackageNotFoundError, version

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_gangline.outcome import GangOutcome
from dagster_gangline.resource import GanglineResource

try:
    _version = version("gangline")
except PackageNotFoundError:
    _version = "0.0.0"

DagsterLibraryRegistry.register("gangline", _version, is_dagster_package=False)

__all__ = ["GangOutcome", "GanglineResource"]
