"""A job under guard: the envoy's hold on its wardens, and what it knows of their ends."""

from __future__ import annotations

import contextlib
import time
from typing import Any

BREAK_GRACE_S = 10.0  # for the supervisors of a job that has lost one, to say their last words
_KILL_AFTER_S = 10.0  # after the grace: a warden that has not answered by then is killed
_MISSING_FOR_S = 20.0  # a warden not found for so long was never asked for, or died while nobody looked
_LAST_WORDS = 300


class Guarded:
    """One job. `settle` finds its wardens, `heed` takes in what they say; `over` when all have ended.

    Every warden is asked once when its supervisor will have ended; it answers when that has happened, so that
    looking at a job costs Ray nothing.
    """

    def __init__(self, name: str, id_: str, namespace: str, nodes: list[str]) -> None:
        self.name, self.id, self.nodes = name, id_, nodes
        self.broken = ""  # why the whole must end, once a part has failed
        self._namespace = namespace
        self._wardens: dict[int, Any] = {}
        self._asked: dict[Any, int] = {}
        self._ends: dict[int, dict[str, Any]] = {}
        self._since_s = time.monotonic()
        self._stopped = ""
        self._deadline_s: float | None = None

    # -- what is known -------------------------------------------------------------------------------

    @property
    def ending(self) -> bool:
        return self._deadline_s is not None

    @property
    def over(self) -> bool:
        late = self._deadline_s is not None and time.monotonic() > self._deadline_s
        return late or len(self._ends) == len(self.nodes)

    @property
    def verdict(self) -> str:
        """How it ended, in a line."""
        return self.broken or self._stopped or "its supervisors have left"

    @property
    def text(self) -> str:
        missing = sum(index not in self._wardens and index not in self._ends for index in range(len(self.nodes)))
        if self.broken or self._stopped:
            return self.verdict
        return f"{missing} of its {len(self.nodes)} wardens are missing" if missing else ""

    # -- what happens --------------------------------------------------------------------------------

    def settle(self) -> None:
        """Find wardens not yet found."""
        import ray

        for index in range(len(self.nodes)):
            if index in self._wardens or index in self._ends:
                continue
            try:
                found = ray.get_actor(f"{self.name}.{index}", namespace=self._namespace)
            except ValueError:
                if time.monotonic() > self._since_s + _MISSING_FOR_S:
                    self._part_ended(index, {"code": None, "log": ""}, "its warden is gone, or never came")
                continue
            self._wardens[index] = found
            self._ask(index)

    def heed(self) -> None:
        """Take in which supervisors have ended."""
        import ray
        from ray.exceptions import ActorUnavailableError, RayError

        if not self._asked:
            return
        done, _ = ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for reference in done:
            index = self._asked.pop(reference)
            if index in self._ends:
                continue
            try:
                end = ray.get(reference)
            except ActorUnavailableError:  # Ray does not know yet whether it is dead
                self._ask(index)
            except RayError as error:
                words = " ".join(str(error).split("\n")[-1].split())[:_LAST_WORDS]
                self._part_ended(index, {"code": None, "log": ""}, f"its warden is gone: {words}")
            else:
                self._part_ended(index, end, _said(end))

    def lose(self, index: int, why: str) -> None:
        """A part of it is lost with its node, whatever its warden says."""
        if index not in self._ends:
            self._part_ended(index, {"code": None, "log": ""}, why)

    def end(self, grace_s: float, why: str) -> None:
        """Ask all supervisors to leave. Asked again, the shorter grace holds."""
        self._stopped = self._stopped or why
        deadline_s = time.monotonic() + grace_s + _KILL_AFTER_S
        if self._deadline_s is None or deadline_s < self._deadline_s:
            self._deadline_s = deadline_s
            for index, warden in self._wardens.items():
                if index not in self._ends:
                    warden.leave.remote(grace_s)

    def remove(self) -> None:
        """Take it out of Ray, with whatever did not end by itself."""
        import ray
        from ray.util.placement_group import PlacementGroup, remove_placement_group

        for warden in self._wardens.values():
            ray.kill(warden)
        remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(self.id))))

    def log(self, within_s: float, most_bytes: int) -> str:
        """What its supervisors have said, each line with its node; those that do not answer in time are left out."""
        import ray
        from ray.exceptions import RayError

        tails = {index: end["log"] for index, end in self._ends.items()}
        asked = {warden.tail.remote(): index for index, warden in self._wardens.items() if index not in tails}
        if asked and within_s:
            done, _ = ray.wait(list(asked), num_returns=len(asked), timeout=within_s)
            for reference in done:
                with contextlib.suppress(RayError):
                    tails[asked[reference]] = ray.get(reference)
        lines = [f"{self.nodes[index] or index}: {line}" for index, tail in sorted(tails.items())
                 for line in _last(tail, most_bytes // len(tails))]
        return "".join(f"{line}\n" for line in lines).encode()[-most_bytes:].decode(errors="ignore")

    def _ask(self, index: int) -> None:
        self._asked[self._wardens[index].ended.remote()] = index

    def _part_ended(self, index: int, end: dict[str, Any], words: str) -> None:
        self._ends[index] = end
        if end["code"] != 0 and not self.ending:
            self.broken = self.broken or f"{self.nodes[index] or f'part {index}'}: {words}"


def _said(end: dict[str, Any]) -> str:
    last = next((line for line in reversed(end["log"].splitlines()) if line.strip()), "")
    return f"its supervisor ended with {end['code']}: {last[-_LAST_WORDS:]}"


def _last(tail: str, most_bytes: int) -> list[str]:
    """The last whole lines of a text that fit, in bytes."""
    return tail.encode()[-most_bytes:].decode(errors="ignore").splitlines()
