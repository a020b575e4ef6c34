"""Names and labels by which the cluster's objects are known to be ours, and values that are safe in labels."""

from __future__ import annotations

import hashlib
import re

MANAGED_BY = "app.kubernetes.io/managed-by"
GANGLINE = "gangline"
FLEET = "gangline/fleet"
JOB = "gangline/job"
GANG = "gangline/gang"
ATTEMPT = "gangline/attempt"
TENANT = "gangline/tenant"
SLOT = "gangline/slot"  # as a label made safe, as an annotation as it is
TITLE = "gangline/title"
INDEX = "gangline/index"  # of a node in a JobSet
DRAINED_BY = "gangline/drained-by"
DRAIN_REASON = "gangline/drain-reason"

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
HOSTNAME = "kubernetes.io/hostname"

_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_KEPT = 54  # with "-" and 8 digits of the hash: at most 63


def label_value(text: str) -> str:
    """The text where it can be a label's value, else what can be kept of it and a hash that tells it from others."""
    if _VALUE.fullmatch(text):
        return text
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:_KEPT].strip("-_.")
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{kept}-{digest}" if kept else digest


def literal(argument: str) -> str:
    """An argument as a container spec must write it, so that nothing in it stands for a variable."""
    return argument.replace("$", "$$")
