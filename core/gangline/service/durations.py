"""How long the like of a gang ran: what a plan goes by when a spec sets no limit."""

from __future__ import annotations

from collections.abc import Iterable

from gangline.store.values import Success

RUNS = 5
Key = tuple[str, str]  # tenant, name


class Durations:
    """The newest successful runs of each (tenant, name). The longest of them is what the next is taken for."""

    def __init__(self) -> None:
        self._runs: dict[Key, list[tuple[int, int, int]]] = {}

    def learn(self, successes: Iterable[Success]) -> set[Key]:
        """Adds runs; the keys whose likely duration is another one now. Hearing of a run twice changes nothing."""
        before: dict[Key, int | None] = {}
        for run in successes:
            key = run.tenant, run.name
            before.setdefault(key, self.likely_ms(key))
            runs = {*self._runs.get(key, ()), (run.ended_ms, run.seq, run.ran_ms)}
            self._runs[key] = sorted(runs)[-RUNS:]
        return {key for key, likely_ms in before.items() if likely_ms != self.likely_ms(key)}

    def likely_ms(self, key: Key) -> int | None:
        """The longest of the last runs, None when none succeeded yet."""
        runs = self._runs.get(key)
        return max(ran_ms for _, _, ran_ms in runs) if runs else None
