"""Bytes and manifests of versions in a POSIX directory; it knows no store and no client."""
