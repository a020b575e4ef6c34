"""When a port is sick: rules as data over samples, pure."""

from gangline.fabric.signals.judging import load_rules, signals
from gangline.fabric.signals.values import Rule, Rules, Sample, Signal, StateRules

__all__ = ["Rule", "Rules", "Sample", "Signal", "StateRules", "load_rules", "signals"]
