"""The loop of a server whose nodes are all on this machine."""

from __future__ import annotations

from pathlib import Path

from gangline.engines.local import LocalEngine
from gangline.model.fleet import Fleet
from gangline.node.sweep import is_swept, sweep
from gangline.node.template import end as end_template
from gangline.scheduler.loop import Loop
from gangline.server.fleet import check_engines
from gangline.server.state import SchedulerLoop, now_ms
from gangline.store import Store


def local_loop(store: Store, fleet: Fleet, home: Path, url: str) -> SchedulerLoop:
    """The scheduler over the local engine; `Rejected` when a pool asks for another one."""
    check_engines(fleet)
    template = Path(url.removeprefix("unix:")).with_name("t.sock")  # beside a path that is known to fit
    engine = LocalEngine(home=home, server_url=url, sweep=sweep, is_swept=is_swept,
                         template_socket=template, end_template=end_template)
    return Loop(store=store, fleet=fleet, engines={"local": engine}, volumes_root=home / "volumes",
                now_ms=now_ms)
