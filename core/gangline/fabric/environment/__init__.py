"""The environment that makes NCCL use the fabric or fail: each line with its reason, for this node and gang."""

from gangline.fabric.environment.comparing import Compared, View, compare, view_of
from gangline.fabric.environment.composing import environment, parse_version
from gangline.fabric.environment.values import Advice, Environment, Gang, Line, Override

__all__ = ["Advice", "Compared", "Environment", "Gang", "Line", "Override", "View", "compare", "environment",
           "parse_version", "view_of"]
