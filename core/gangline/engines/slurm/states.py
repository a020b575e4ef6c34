"""Slurm's states of nodes and jobs in our words: two literal tables. What is in neither is UNKNOWN.

Sources: the manual pages of sinfo ("Node state codes") and squeue ("Job state codes"), 22.05 to 25.11.
"""

from __future__ import annotations

from gangline.engines.base import JobStatus, NodeStatus

# Decides which of a node's words counts: the first of these that any of them means.
_WEIGHT = (NodeStatus.UNKNOWN, NodeStatus.DOWN, NodeStatus.DRAINED, NodeStatus.BOOTING, NodeStatus.ASLEEP,
           NodeStatus.READY)

NODE_STATES: dict[str, NodeStatus] = {
    # what a node is at bottom
    "idle": NodeStatus.READY,
    "allocated": NodeStatus.READY,
    "mixed": NodeStatus.READY,
    "down": NodeStatus.DOWN,
    "error": NodeStatus.DOWN,
    "unknown": NodeStatus.UNKNOWN,
    "future": NodeStatus.UNKNOWN,
    # and what is said of it besides
    "drain": NodeStatus.DRAINED,
    "drained": NodeStatus.DRAINED,
    "draining": NodeStatus.DRAINED,
    "fail": NodeStatus.DRAINED,
    "failing": NodeStatus.DRAINED,
    "inval": NodeStatus.DRAINED,  # it registered with less than slurm.conf promises
    "invalid_reg": NodeStatus.DRAINED,
    "maint": NodeStatus.DRAINED,
    "maintenance": NodeStatus.DRAINED,
    "reserved": NodeStatus.DRAINED,
    "blocked": NodeStatus.DRAINED,
    "no_respond": NodeStatus.UNKNOWN,  # until Slurm gives it up (SlurmdTimeout) its jobs live
    "not_responding": NodeStatus.UNKNOWN,
    "reboot": NodeStatus.DRAINED,
    "reboot_requested": NodeStatus.DRAINED,
    "reboot_issued": NodeStatus.BOOTING,
    "power_up": NodeStatus.BOOTING,
    "powering_up": NodeStatus.BOOTING,
    "power_down": NodeStatus.ASLEEP,
    "powering_down": NodeStatus.ASLEEP,
    "powered_down": NodeStatus.ASLEEP,
    "power_drain": NodeStatus.DRAINED,
    "cloud": NodeStatus.READY,
    "completing": NodeStatus.READY,
    "dynamic_future": NodeStatus.READY,
    "dynamic_norm": NodeStatus.READY,
    "external": NodeStatus.READY,
    "perfctrs": NodeStatus.READY,
    "planned": NodeStatus.READY,
    "resume": NodeStatus.READY,
    "undrain": NodeStatus.READY,
}

MARKS: dict[str, str] = {  # that some versions put behind a state in place of a word
    "*": "not_responding", "~": "powered_down", "#": "powering_up", "!": "power_down", "%": "powering_down",
    "$": "maint", "@": "reboot_requested", "^": "reboot_issued", "-": "planned",
}

# A job in the reservation that holds the node may start there.
OF_RESERVATIONS = frozenset({"maint", "maintenance", "reserved"})
# A machine that is off or coming up does not respond, and nothing is wrong with it.
_SILENCE = frozenset({"no_respond", "not_responding"})

JOB_STATES: dict[str, JobStatus] = {
    "PENDING": JobStatus.WAITING,
    "REQUEUED": JobStatus.WAITING,
    "REQUEUE_FED": JobStatus.WAITING,
    "REQUEUE_HOLD": JobStatus.WAITING,
    "RESV_DEL_HOLD": JobStatus.WAITING,
    "SPECIAL_EXIT": JobStatus.WAITING,
    "CONFIGURING": JobStatus.RUNNING,
    "RUNNING": JobStatus.RUNNING,
    "SUSPENDED": JobStatus.RUNNING,
    "STOPPED": JobStatus.RUNNING,
    "SIGNALING": JobStatus.RUNNING,
    "RESIZING": JobStatus.RUNNING,
    "STAGE_OUT": JobStatus.RUNNING,
    "COMPLETING": JobStatus.RUNNING,
    "EXPEDITING": JobStatus.WAITING,
    "BOOT_FAIL": JobStatus.ENDED,
    "CANCELLED": JobStatus.ENDED,
    "COMPLETED": JobStatus.ENDED,
    "DEADLINE": JobStatus.ENDED,
    "FAILED": JobStatus.ENDED,
    "LAUNCH_FAILED": JobStatus.ENDED,
    "NODE_FAIL": JobStatus.ENDED,
    "OUT_OF_MEMORY": JobStatus.ENDED,
    "PREEMPTED": JobStatus.ENDED,
    "RECONFIG_FAIL": JobStatus.ENDED,
    "REVOKED": JobStatus.ENDED,
    "TIMEOUT": JobStatus.ENDED,
}


def node_words(text: str) -> frozenset[str]:
    """The words of a state such as "idle+drain", "DOWN*" or "mixed-", marks turned into words."""
    words: set[str] = set()
    for part in text.strip().lower().split("+"):
        word = part
        while word and word[-1] in MARKS:
            words.add(MARKS[word[-1]])
            word = word[:-1]
        if word:
            words.add(word)
    return frozenset(words)


def node_status(words: frozenset[str], *, reserved_for_us: bool = False) -> NodeStatus:
    """What a node's words come to; `reserved_for_us` when its pool works inside a reservation."""
    if reserved_for_us:
        words -= OF_RESERVATIONS
    meant = {word: NODE_STATES.get(word, NodeStatus.UNKNOWN) for word in words}
    if {NodeStatus.ASLEEP, NodeStatus.BOOTING, NodeStatus.DOWN} & set(meant.values()):
        meant = {word: status for word, status in meant.items() if word not in _SILENCE}
    return next((status for status in _WEIGHT if status in meant.values()), NodeStatus.UNKNOWN)


def job_status(word: str) -> JobStatus:
    """What a job's state comes to; "CANCELLED by 1000" counts as CANCELLED."""
    return JOB_STATES.get(word.split()[0].upper() if word.strip() else "", JobStatus.UNKNOWN)
