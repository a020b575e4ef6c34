"""Durations and money as people write them, as numbers with the unit in the name."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

NANO_PER_UNIT = 1_000_000_000
MS_PER_HOUR = 3_600_000
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)\s*(ms|s|m|h|d))")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration_s(value: str | int | float) -> float:
    """Seconds of "90s", "1h30m", "2d", "250ms" or a bare number of seconds; ValueError otherwise."""
    if isinstance(value, bool):
        raise ValueError("expected a duration such as 90s, 10m or 6h")
    if isinstance(value, int | float):
        seconds = float(value)
    else:
        text = value.strip()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        else:
            parts = _DURATION.findall(text)
            if not parts or "".join(n + u for n, u in parts) != re.sub(r"\s+", "", text):
                raise ValueError(f"{value!r} is not a duration; write 90s, 10m, 6h or 1h30m")
            seconds = sum(float(n) * _SECONDS[u] for n, u in parts)
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{value!r} is out of range for a duration")
    return seconds


def format_duration(seconds: float) -> str:
    """A short reading of a duration: 0.4s, 12s, 3m05s, 2h10m."""
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def parse_money_nano(value: str | int) -> int:
    """Integer nano-units of a decimal amount such as "7.10"; floats are refused by type."""
    if isinstance(value, bool | float):
        raise ValueError('write money as a string, such as "7.10", so that nothing is rounded')
    try:
        nano = Decimal(str(value)) * NANO_PER_UNIT
    except InvalidOperation:
        raise ValueError(f"{value!r} is not an amount; write it as a string such as \"7.10\"") from None
    if not nano.is_finite() or nano < 0:
        raise ValueError(f"{value!r} is not a price")
    return int(nano.to_integral_value())


def format_money(nano: int, places: int = 4) -> str:
    """A decimal reading of nano-units, rounded half even once, here, for show."""
    return f"{Decimal(nano) / NANO_PER_UNIT:.{places}f}"
