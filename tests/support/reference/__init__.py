"""The reference planner: docs/planning.md in plain Python, slow, written to be read beside it."""

from reference.planner import reference_plan

__all__ = ["reference_plan"]
