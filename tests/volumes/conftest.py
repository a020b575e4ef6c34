"""A small published version on disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gangline.model.volume import FileEntry, Manifest
from gangline.volumes.hashing import seal_tree
from gangline.volumes.layout import make_version
from gangline.volumes.publish import manifest_sha256, put_manifest
from gangline.volumes.verify import verify


@dataclass(frozen=True)
class Version:
    root: Path
    directory: str
    sha256: str
    path: Path

    def problems(self) -> list[str]:
        return verify(self.root, self.directory, self.sha256)


def manifest(directory: str, files: list[FileEntry]) -> Manifest:
    return Manifest(volume="sft", directory=directory, format="files", files=tuple(files), world_size=1,
                    gang="g-aaaaaaaaaaaa", attempt=1, slot="s", digest="d", created_ms=1)


@pytest.fixture
def publish(tmp_path: Path) -> Callable[..., Version]:
    """Publish files (path -> bytes) as a version."""
    def make(files: dict[str, bytes], directory: str = "versions/g-aaaaaaaaaaaa-1-x") -> Version:
        root = tmp_path / "volume"
        path = make_version(root, directory)
        for name, data in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        text = manifest(directory, seal_tree(path, path)).text()
        put_manifest(root, directory, text)
        return Version(root, directory, manifest_sha256(text), path)
    return make


@pytest.fixture
def version(publish: Callable[..., Version]) -> Version:
    data = random.Random(7)
    return publish({"a.bin": data.randbytes(70_000), "deep/er/b.bin": data.randbytes(1_300_000), "empty": b"",
                    ".metadata": data.randbytes(900)})
