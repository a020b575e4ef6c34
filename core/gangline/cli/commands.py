"""Every command: importing this module registers them all."""

from __future__ import annotations

from gangline.cli import doctor, fleet, gangs, plan, runs, service, usage, volumes

__all__ = ["doctor", "fleet", "gangs", "plan", "runs", "service", "usage", "volumes"]
