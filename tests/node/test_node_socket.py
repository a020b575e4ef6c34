"""What ranks ask of the server passes through their supervisor."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from node_lab import Lab


def _talk(lab: Lab, gang: str) -> Any:
    """A rank's connection to its supervisor, as its info file says."""
    info = json.loads(next(lab.home.glob(f"nodes/n1/run/{gang}.*/info.json")).read_text())
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(lab.home / "nodes" / "n1" / "s.sock"))
    lines = client.makefile("rw")

    def ask(**request: Any) -> dict[str, Any]:
        lines.write(json.dumps({"token": info["token"], "rank": 0, **request}) + "\n")
        lines.flush()
        return dict(json.loads(lines.readline()))

    return ask, client


def test_ranks_talk_to_the_server_through_the_supervisor(shared: Lab, gang: str, tmp_path: Path) -> None:
    mount = {"mount": "/ckpt", "volume": "sft", "root": str(shared.home / "volumes" / "sft")}
    shared.begin(gang, shared.task(command=("sleep", "600"), mounts=(mount,)))
    shared.script.wait_report("started", gang)
    ask, client = _talk(shared, gang)
    with client:
        assert ask(op="hello") == {"ok": True}
        opened = ask(op="open_save", mount="/ckpt", key="step-1", step=1)
        assert opened == {"ok": True, "save": 0, "directory": "versions/0", "root": mount["root"]}
        assert ask(op="open_save", mount="/ckpt", key="step-1", step=1) == opened
        entry = {"path": "a.bin", "bytes": 1, "sha256": "0" * 64}
        saved = ask(op="report_save", save=0, files=[entry], format="files", metrics={"loss": 1.5}, extra={})
        assert (saved["ok"], saved["published"]) == (True, None)
        with shared.script.changed:
            shared.script.published[0] = 4
        assert ask(op="save_state", save=0)["published"] == 4
        assert (shared.script.saves[0]["gang"], shared.script.saves[0]["generation"]) == (gang, 1)
        assert shared.script.saved[0]["files"] == [entry]
        for step in range(50):
            assert ask(op="progress", progress={"step": step, "metrics": {"loss": 2.0}}) == {"ok": True}
        shared.script.wait_report("advanced", gang)
        shared.script.wait(lambda: shared.script.of("advanced", gang)[-1].progress.step == 49,
                           "the newest progress")
        assert len(shared.script.of("advanced", gang)) < 25  # thinned out
        assert ask(op="open_save", mount="/other", key="x")["error"]["kind"] == "not_found"
        assert ask(op="open_save", mount="/ckpt")["error"]["kind"] == "rejected"
        assert ask(op="save_state", save=9)["error"]["kind"] == "not_found"
        assert ask(op="dance")["error"]["kind"] == "rejected"
        assert ask(op="hello", token="stolen")["error"]["kind"] == "not_found"
        shared.stop(gang)
        assert ask(op="hello")["error"]["kind"] == "not_found"
