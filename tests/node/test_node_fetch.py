"""Fetching one code snapshot for several gangs at the same moment."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

from gangline.node.fetch import fetch_code
from gangline.node.link import Link

CODE = b"print('hello')\n" * 4096


def _archive() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(CODE)
        tar.addfile(info, io.BytesIO(CODE))
    return out.getvalue()


async def _until(true: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(10):
            while not true():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not in time: {what}") from None


class _Server:
    """Sends the first asker half of the archive and the second one nothing, until it is told to go on."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.go_on = [asyncio.Event(), asyncio.Event()]
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        mine, self.asked = self.asked, self.asked + 1
        half = len(self.content) // 2 if mine == 0 else 0
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(self.content) + self.content[:half])
        await writer.drain()
        await self.go_on[mine].wait()
        writer.write(self.content[half:])
        await writer.drain()
        writer.close()


async def _fetch_twice(folder: Path) -> None:
    server = _Server(_archive())
    sha256 = hashlib.sha256(server.content).hexdigest()
    code = folder / "home" / "code"
    async with await asyncio.start_unix_server(server.answer, folder / "s"):
        link = Link(f"unix:{folder / 's'}")
        first = asyncio.create_task(fetch_code(link, folder / "home", sha256))
        await _until(lambda: len(list(code.glob(".*.tar"))) == 1, "the first download")
        second = asyncio.create_task(fetch_code(link, folder / "home", sha256))
        await _until(lambda: len(list(code.glob(".*.tar"))) == 2, "a file of its own for the second download")
        server.go_on[0].set()
        assert (await first / "train.py").read_bytes() == CODE
        server.go_on[1].set()
        assert (await second / "train.py").read_bytes() == CODE
        await link.close()
    assert list(code.glob(".*.tar")) == []


def test_two_gangs_that_fetch_one_snapshot_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    asyncio.run(_fetch_twice(tmp_path))
