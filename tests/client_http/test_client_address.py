from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.client.address import home_dir, is_loopback, parse_address, token_of
from gangline.client.embedded import server_environ
from gangline.client.record import (
    ServerRecord,
    process_start,
    read_record,
    record_path,
    remove_record,
    write_record,
)
from gangline.model.errors import Rejected


@pytest.mark.parametrize(("url", "socket", "base"), [
    ("unix:/run/g.sock", "/run/g.sock", "http://gangline"),
    ("unix:///run/g.sock", "/run/g.sock", "http://gangline"),
    ("http://localhost:7070/", None, "http://localhost:7070"),
    ("https://gangs.example.com", None, "https://gangs.example.com"),
])
def test_an_address_is_a_socket_or_a_url(url: str, socket: str | None, base: str) -> None:
    address = parse_address(url)
    assert (address.socket, address.base_url) == (socket, base)
    assert parse_address(address.url) == address


@pytest.mark.parametrize("url", ["", "localhost:7070", "unix:", "unix:relative", "ftp://host", "http://",
                                 "http://user:secret@host"])
def test_anything_else_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(Rejected) as caught:
        parse_address(url)
    assert caught.value.field == "url"
    assert caught.value.fix


def test_a_token_is_not_shown() -> None:
    assert "s3cret" not in repr(parse_address("http://h:1", token="s3cret"))


def test_the_token_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("from-file\n")
    assert token_of({}) is None
    assert token_of({"GANGLINE_TOKEN": "t", "GANGLINE_TOKEN_FILE": str(path)}) == "t"
    assert token_of({"GANGLINE_TOKEN_FILE": str(path)}) == "from-file"
    path.write_text("")
    with pytest.raises(Rejected, match="GANGLINE_TOKEN_FILE"):
        token_of({"GANGLINE_TOKEN_FILE": str(path)})


def test_the_home_is_the_argument_else_the_environment_else_the_user_s(tmp_path: Path) -> None:
    assert home_dir(tmp_path, {"GANGLINE_HOME": "/other"}) == tmp_path
    assert home_dir(None, {"GANGLINE_HOME": "/other/"}) == Path("/other")
    assert home_dir(None, {}) == Path.home() / ".gangline"


@pytest.mark.parametrize(("host", "loopback"), [
    ("localhost", True), ("127.0.0.1", True), ("127.3.2.1", True), ("[::1]", True), ("LOCALHOST", True),
    ("127.evil.example", False), ("0.0.0.0", False), ("example.com", False), ("", False)])
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_a_record_tells_a_process_from_a_later_one_with_its_number(tmp_path: Path) -> None:
    start = process_start(os.getpid())
    assert start is not None
    record = ServerRecord(pid=os.getpid(), start_time=start, url="unix:/s", version="1")
    assert read_record(tmp_path) is None
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert record.alive
    assert not ServerRecord(pid=os.getpid(), start_time=start + 1, url="", version="").alive
    remove_record(tmp_path, os.getpid() + 1)
    assert read_record(tmp_path) == record
    remove_record(tmp_path, os.getpid())
    assert read_record(tmp_path) is None


def test_a_zombie_and_a_dead_process_are_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, not collected
    assert process_start(child.pid) is None
    child.wait()
    assert process_start(child.pid) is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "null"])
def test_a_record_that_is_not_whole_is_none(tmp_path: Path, text: str) -> None:
    record_path(tmp_path).write_text(text)
    assert read_record(tmp_path) is None


def test_a_server_inherits_only_what_is_allowed(tmp_path: Path) -> None:
    kept = server_environ(tmp_path, {
        "PATH": "/bin", "LC_ALL": "C", "CUDA_HOME": "/cuda", "GANGLINE_DEBUG": "1", "SSL_CERT_FILE": "/c",
        "AIRFLOW_HOME": "/air", "DAGSTER_HOME": "/dag", "LD_PRELOAD": "x.so", "PYTHONPATH": "/dags",
        "GANGLINE_URL": "http://h", "GANGLINE_TOKEN": "t", "GANGLINE_GANG": "g-1", "GANGLINE_HOME": "/h"})
    assert kept.pop("PYTHONPATH", "") != "/dags"
    assert kept == {"PATH": "/bin", "LC_ALL": "C", "CUDA_HOME": "/cuda", "GANGLINE_DEBUG": "1",
                    "SSL_CERT_FILE": "/c", "GANGLINE_HOME": str(tmp_path)}


def test_importing_the_client_loads_no_server_and_no_terminal() -> None:
    heavy = ("fastapi", "sqlalchemy", "uvicorn", "yaml", "rich", "click", "httpx")
    code = f"import sys, gangline.client; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_connecting_loads_no_server_and_no_terminal() -> None:
    heavy = ("fastapi", "sqlalchemy", "uvicorn", "yaml", "rich", "click")
    code = f"import sys, gangline.client.connection; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
