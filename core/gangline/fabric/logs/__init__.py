"""What the logs of NCCL, its network plugins, UCX and torch say of a gang's fabric. Pure: bytes in, verdicts out."""

from gangline.fabric.logs.diagnosis import Diagnosis
from gangline.fabric.logs.values import Blame, Cause, GangVerdict, Kind, RankVerdict, Retry, State

__all__ = ["Blame", "Cause", "Diagnosis", "GangVerdict", "Kind", "RankVerdict", "Retry", "State"]
