"""Pure: what lease seconds went into and what they cost, exact to the nano-unit."""

from gangline.metering.interval import LOST, PhaseInterval, cost_nano
from gangline.metering.summary import BY, check_by, summarise

__all__ = ["BY", "LOST", "PhaseInterval", "check_by", "cost_nano", "summarise"]
