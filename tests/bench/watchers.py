"""What a thousand waiting clients cost a server."""

from __future__ import annotations

import asyncio
import resource
import time

import psutil
from lab import Lab, read_marks
from table import Row

import gangline

ABOUT = "processor time of a server with 1,000 idle watchers, against the same without"
WATCHERS = 1000
HOLD_S = 6.0  # how long these watchers ask to be held
USUAL_HOLD_S = 25.0  # and how long the client's default and the Airflow trigger do
WINDOW_S = 2.0
MOST_ROUNDS = 3  # a round takes ten seconds and its spread is small


def run(lab: Lab) -> list[Row]:
    fleet = lab.fleet
    folder = lab.marks()
    gang, token = fleet.submit("rank_work:hold", {"folder": str(folder)})
    read_marks(folder, 8)
    server = psutil.Process(fleet.client.status().pid)
    _allow_open_files(WATCHERS + 256)
    rounds = min(lab.rounds, MOST_ROUNDS)
    alone, idle, renewing = [], [], []
    for turn in range(rounds):
        time.sleep(0.5)
        alone.append(_busy_percent(server, WINDOW_S))
        held, renewals_s = asyncio.run(_watched(str(fleet.home), gang, token, server))
        idle.append(held)
        renewing.append(held + 100 * renewals_s / USUAL_HOLD_S)
        lab.say(f"watchers: round {turn + 1} of {rounds}: alone {alone[-1]:.1f} %, held {held:.1f} %, "
                f"1,000 renewals {renewals_s:.2f} s")
    fleet.client.cancel(gang, token, "measured")
    fleet.until_final(gang, token)
    return [
        Row(what="server with 1,000 watchers held", ours=tuple(idle), unit="% of a core", most=2.0,
            against="the same server alone", other=tuple(alone)),
        Row(what=f"and with their renewals every {USUAL_HOLD_S:.0f} s", ours=tuple(renewing),
            unit="% of a core", against="the same server alone", other=tuple(alone)),
    ]


def _busy_percent(server: psutil.Process, window_s: float) -> float:
    before_s, began_s = _used_s(server), time.monotonic()
    time.sleep(window_s)
    return 100 * (_used_s(server) - before_s) / (time.monotonic() - began_s)


async def _watched(home: str, gang: str, token: str, server: psutil.Process) -> tuple[float, float]:
    """Percent of a core while all are held, and the processor seconds of one renewal of each."""
    client = await gangline.client.aconnect(home=home)
    async with client:
        cursor = (await client.watch(gang, token, 0, 0.0)).cursor
        # Two holds each: what lies between them is a renewal on a connection that stands.
        done = [0, 0]

        async def watcher() -> None:
            for hold in range(2):
                await client.watch(gang, token, cursor, HOLD_S)
                done[hold] += 1

        watching = [asyncio.create_task(watcher()) for _ in range(WATCHERS)]
        await asyncio.sleep(HOLD_S - WINDOW_S - 0.2)
        held = await asyncio.to_thread(_busy_percent, server, WINDOW_S)
        if done[0]:
            raise TimeoutError(f"{done[0]} watchers were answered before the window's end")
        before_s = _used_s(server)
        while done[0] < WATCHERS:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)
        renewals_s = _used_s(server) - before_s
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    return held, renewals_s


def _used_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    return float(times.user + times.system)


def _allow_open_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard) if hard >= 0 else count, hard))
