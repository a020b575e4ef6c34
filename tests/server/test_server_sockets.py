from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from gangline.model.errors import Rejected
from gangline.server.sockets import MAX_PATH_BYTES, bind_tcp, bind_unix


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s")


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        return True


def test_the_socket_is_in_the_home_and_private(short: Path) -> None:
    (short / "s.sock").touch()  # left behind by a server that was killed
    sock, path = bind_unix(short)
    with sock:
        assert path == short / "s.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert answers(path)


def test_a_long_home_gets_a_short_private_place(short: Path) -> None:
    home = short / ("h" * 120)
    home.mkdir()
    sock, path = bind_unix(home, short)
    with sock:
        assert len(str(path)) <= MAX_PATH_BYTES
        assert path.parent.parent.parent == short
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert answers(path)


def test_when_even_the_short_place_is_too_long_it_says_so(short: Path) -> None:
    home = short / ("h" * 120)
    home.mkdir()
    with pytest.raises(Rejected, match="shorter path"):
        bind_unix(home, home)


def test_a_short_place_that_others_can_enter_is_refused(short: Path) -> None:
    home = short / ("h" * 120)
    sock, path = bind_unix(home, short)
    sock.close()
    path.parent.parent.chmod(0o777)
    with pytest.raises(Rejected, match="private directory"):
        bind_unix(home, short)


@pytest.mark.parametrize("listen", ["7070", "localhost:", ":80", "localhost:http", "localhost:70000"])
def test_a_listener_is_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(Rejected, match="HOST:PORT"):
        bind_tcp(listen)


def test_a_port_in_use_is_refused_in_one_line() -> None:
    sock, host = bind_tcp("127.0.0.1:0")
    with sock, pytest.raises(Rejected, match="choose another address"):
        bind_tcp(f"{host}:{sock.getsockname()[1]}")
