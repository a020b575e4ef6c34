"""Bytes and manifests of versions in a POSIX directory; it knows no store and no client."""

from __future__ import annotations

from gangline.volumes.hashing import HashingWriter, hash_file, seal_tree
from gangline.volumes.publish import manifest_sha256, put_manifest, read_manifest
from gangline.volumes.verify import verify

__all__ = ["HashingWriter", "hash_file", "manifest_sha256", "put_manifest", "read_manifest", "seal_tree",
           "verify"]
