"""What a thousand waiting clients cost a server."""

from __future__ import annotations

import asyncio
import resource
import time

import psutil
from lab import Lab, read_marks
from table import Row

import gangline
from gangline.client import AsyncClient

ABOUT = "processor time of a server with 1,000 idle watchers, against the same without"
WATCHERS = 1000
HOLD_S = 55.0  # how long these ask to be held: all of them have to come, and be measured, within that
USUAL_HOLD_S = 25.0  # what the client's default and the Airflow trigger ask for
WINDOW_S = 2.0
ARRIVAL_S = 40.0


def run(lab: Lab) -> list[Row]:
    fleet = lab.fleet
    folder = lab.marks()
    gang, token = fleet.submit("rank_work:hold", {"folder": str(folder)})
    read_marks(folder, 8)
    server = psutil.Process(fleet.client.status().pid)
    _allow_open_files(WATCHERS + 256)
    lab.say("watchers: the server alone")
    time.sleep(1.0)  # what starting the gang left to do
    alone = [_busy_percent(server, WINDOW_S) for _ in range(lab.rounds)]
    held, questions_s = asyncio.run(_Crowd(lab, gang, token, server).measure())
    again = 100 * questions_s / USUAL_HOLD_S
    fleet.client.cancel(gang, token, "measured")
    fleet.until_final(gang, token)
    return [
        Row(what=f"server with {WATCHERS:,} watchers held", ours=tuple(held), unit="% of a core", most=2.0,
            against="the same server alone", other=tuple(alone)),
        Row(what=f"and with each asking again every {USUAL_HOLD_S:.0f} s", unit="% of a core",
            ours=tuple(percent + again for percent in held), against="the same server alone", other=tuple(alone)),
    ]


class _Crowd:
    """A thousand owners of one gang, each waiting for news of it."""

    def __init__(self, lab: Lab, gang: str, token: str, server: psutil.Process) -> None:
        self.lab, self.gang, self.token, self.server = lab, gang, token, server
        self.answered = 0

    async def measure(self) -> tuple[list[float], float]:
        """Percent of a core while all are held, and the processor seconds one question of each took."""
        async with await gangline.client.aconnect(home=self.lab.fleet.home) as client:
            cursor = (await client.watch(self.gang, self.token, 0, 0.0)).cursor
            before_s, began_s = _used_s(self.server), time.monotonic()
            watching = [asyncio.create_task(self._watch(client, cursor)) for _ in range(WATCHERS)]
            try:
                await self._all_in()
                questions_s = _used_s(self.server) - before_s
                self.lab.say(f"watchers: {WATCHERS:,} in after {time.monotonic() - began_s:.1f} s, "
                             f"{questions_s:.1f} s of the server's processor time")
                held: list[float] = []
                while len(held) < self.lab.rounds:
                    percent = await asyncio.to_thread(_busy_percent, self.server, WINDOW_S)
                    if self.answered:
                        break  # the first hold is over
                    held.append(percent)
                return held, questions_s
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)

    async def _watch(self, client: AsyncClient, cursor: int) -> None:
        await client.watch(self.gang, self.token, cursor, HOLD_S)
        self.answered += 1

    async def _all_in(self) -> None:
        deadline = time.monotonic() + ARRIVAL_S
        while (there := (await asyncio.to_thread(self.lab.fleet.client.status)).watchers) < WATCHERS:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{there} of {WATCHERS} watchers came within {ARRIVAL_S:.0f} s")
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)  # the answer to the last status is not a watcher's doing


def _busy_percent(server: psutil.Process, window_s: float) -> float:
    before_s, began_s = _used_s(server), time.monotonic()
    time.sleep(window_s)
    return 100 * (_used_s(server) - before_s) / (time.monotonic() - began_s)


def _used_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    return float(times.user + times.system)


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
