"""Samples of a port, the rules about them, and what they say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gangline.model.base import Wire

SignalLevel = Literal["drain", "warn", "note", "unknown"]


class Sample(Wire):
    """What one look at one port saw. A counter that could not be read is None, which is not zero.

    `present` is False when the device is not there. `state` and `phys_state` are the kernel's words.
    """

    at_s: float
    device: str
    port: int = 1
    present: bool = True
    state: str | None = None
    phys_state: str | None = None
    counters: dict[str, int | None] = {}


class Rule(Wire):
    """A limit on how fast counters may grow; the fields are explained in signals.yaml."""

    name: str
    counters: tuple[str, ...] = Field(min_length=1)
    bits: int = Field(default=64, ge=1, le=64)
    more_than: float = Field(ge=0)
    per_s: float | None = Field(default=None, gt=0)
    window_s: float = Field(gt=0)
    level: SignalLevel
    text: str
    source: str
    measured: bool = False


class StateRules(Wire):
    """Limits on how long and how often a port may be away."""

    gone_samples: int = Field(ge=1)
    drop_after_s: float
    flap_down_s: float
    flap_times: int = Field(ge=1)
    flap_window_s: float


class Rules(Wire):
    """Everything a port is judged by."""

    rules: tuple[Rule, ...]
    states: StateRules


class Signal(Wire):
    """One thing that is wrong with a port now. `value` exceeds `limit`; both are in the rule's own terms."""

    rule: str
    level: SignalLevel
    device: str
    port: int
    text: str
    value: float
    limit: float
    source: str = ""
