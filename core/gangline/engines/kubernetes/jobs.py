"""Jobs as the engine protocol tells of them, from the workload, its pods and the nodes they are on."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gangline.engines.base import JobStatus, SeenJob
from gangline.engines.kubernetes.seen import Pod, Workload

# By the condition that ended a Job or JobSet, once no pod of it is left on a node that answers.
ENDED = {"Complete": JobStatus.ENDED, "Completed": JobStatus.ENDED, "Failed": JobStatus.ENDED}


def seen_jobs(workloads: Iterable[Workload], pods: Iterable[Pod], answering: Collection[str]) -> tuple[SeenJob, ...]:
    """Every workload, and pods of ours whose workload somebody has deleted alone: they still run something.

    `answering` are the names of the nodes that do.
    """
    members: dict[str, list[Pod]] = {}
    for pod in pods:
        members.setdefault(pod.job, []).append(pod)
    seen = [_seen(workload, members.pop(workload.name, []), answering) for workload in workloads]
    for name, orphans in sorted(members.items()):
        if _live(orphans, answering):
            seen.append(SeenJob(name=name, id="", status=JobStatus.RUNNING, nodes=_nodes(orphans),
                                text="its workload is gone and its pods are not"))
    return tuple(seen)


def _seen(workload: Workload, pods: list[Pod], answering: Collection[str]) -> SeenJob:
    status = _status(workload, pods, answering)
    words = [workload.text, *(_words(pod) for pod in sorted(pods, key=lambda pod: (not pod.failed, pod.index)))]
    if status is JobStatus.WAITING and workload.suspended:
        words.append("it is suspended")
    return SeenJob(name=workload.name, id=workload.uid, status=status, nodes=_nodes(pods),
                   text=next((text for text in words if text), ""))


def _status(workload: Workload, pods: list[Pod], answering: Collection[str]) -> JobStatus:
    if workload.ended is not None or workload.ending:
        if _live(pods, answering):
            return JobStatus.RUNNING
        return JobStatus.ENDED if workload.ended is None else ENDED.get(workload.ended, JobStatus.UNKNOWN)
    return JobStatus.RUNNING if any(pod.node for pod in pods) else JobStatus.WAITING


def _live(pods: Iterable[Pod], answering: Collection[str]) -> bool:
    return any(not pod.over and pod.node in answering for pod in pods)


def _nodes(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(pod.node for pod in sorted(pods, key=lambda pod: pod.index) if pod.node)


def _words(pod: Pod) -> str:
    return f"{pod.node or pod.name}: {pod.text}" if pod.text else ""
