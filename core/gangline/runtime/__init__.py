"""What user code imports on a rank; it talks to its supervisor only.

Importing it loads neither torch nor the wire models: ranks start faster than either is imported.
"""

from __future__ import annotations

from gangline.runtime.checkpoint import load_checkpoint, save_checkpoint
from gangline.runtime.info import ClusterInfo, MountInfo, cluster_info
from gangline.runtime.progress import report_progress
from gangline.runtime.stopping import stop_requested
from gangline.runtime.versions import new_version, path_of, resume_path

__all__ = ["ClusterInfo", "MountInfo", "cluster_info", "load_checkpoint", "new_version", "path_of",
           "report_progress", "resume_path", "save_checkpoint", "stop_requested"]
