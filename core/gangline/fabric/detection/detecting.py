"""From files to one answer: what this host's fabric is, what it is for, what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gangline.fabric.detection.checks_host import host_findings, topology_file, way_to_gpus
from gangline.fabric.detection.checks_nics import nic_findings
from gangline.fabric.detection.kinds import compute_gpus, gpu_types
from gangline.fabric.detection.matching import fits
from gangline.fabric.detection.nics import sort_nics
from gangline.fabric.detection.values import Detection, Fit, Nic, Role
from gangline.fabric.finding import Finding, Level, by_weight, verdict_of
from gangline.fabric.host import Host, observe
from gangline.fabric.profiles import Catalogue, Kind, Profile, load_catalogue
from gangline.model.errors import NotFound

GENERIC = "generic"


def detect(root: Path | str = "/", *, catalogue: Catalogue | None = None, profile: str | None = None,
           library_directories: Iterable[str] = ()) -> Detection:
    """What the host beneath `root` is. Only reads; what it reads never makes it raise.

    Args:
        profile: take this one instead of finding out.
        library_directories: where the loader looks first (LD_LIBRARY_PATH).

    Raises:
        NotFound: there is no profile of that name.
    """
    catalogue = catalogue or load_catalogue()
    more = [f"{folder.strip('/')}/lib*.so*" for folder in library_directories if folder.startswith("/")]
    wanted = (*catalogue.wanted(), "dev/infiniband/*", *more)
    return judge(observe(root, wanted=wanted), catalogue, profile=profile)


def judge(host: Host, catalogue: Catalogue, *, profile: str | None = None) -> Detection:
    """The same from what was read already. Pure."""
    fit, others, row = _choose(host, catalogue, profile)
    nics = sort_nics(host, row, catalogue)
    holds, how = way_to_gpus(host, catalogue)
    found = [*_about_profile(fit, others, profile), *nic_findings(host, row, catalogue, nics),
             *host_findings(host, row, catalogue, nics)]
    types = gpu_types(host, catalogue)
    return Detection(
        profile=row.name, provider=row.provider, kind=_kind(row, nics), why=fit.reasons,
        also_fits=tuple(other.profile for other in others), verdict=verdict_of(found),
        gpu_types=tuple(types), gpus=len(compute_gpus(host, catalogue)), gpu_direct=how if holds else None,
        socket_interface=host.route.name if host.route is not None else None,
        topology_file=topology_file(host, row, catalogue), nics=nics, findings=by_weight(found), host=host, row=row)


def _choose(host: Host, catalogue: Catalogue, name: str | None) -> tuple[Fit, tuple[Fit, ...], Profile]:
    if name is not None:
        row = catalogue.profile(name)
        if row is None:
            raise NotFound(f"no profile {name!r}", field="--profile", fix="see: gangline rdma profiles")
        return Fit(profile=name, score=0, reasons=("it was named",)), (), row
    found = fits(host, catalogue)
    if not found:
        row = catalogue.profile(GENERIC) or catalogue.profiles[-1]
        return Fit(profile=row.name, score=0, reasons=("nothing on this host says what it is",)), (), row
    best = found[0]
    row = catalogue.profile(best.profile)
    assert row is not None
    # Those that ask for less and are for any maker's machines always fit as well; only equals are in doubt.
    return best, tuple(fit for fit in found[1:] if fit.score == best.score), row


def _about_profile(fit: Fit, others: tuple[Fit, ...], named: str | None) -> Iterable[Finding]:
    if others:
        names = ", ".join(other.profile for other in others)
        yield Finding(code="profile-several", level=Level.WARN, where=fit.profile, text=f"{names} fit as well",
                      fix="name the right one with --profile or GANGLINE_RDMA_PROFILE")
    elif named is None and fit.score <= 1:
        yield Finding(code="profile-generic", level=Level.NOTE, where=fit.profile, text="no provider's machine was "
                      "recognised, so how many NICs there should be, and how fast, is not checked",
                      fix="name a profile with --profile or GANGLINE_RDMA_PROFILE, or write an own one")


def _kind(row: Profile, nics: tuple[Nic, ...]) -> Kind | None:
    kinds = {nic.kind for nic in nics if nic.role is Role.COMPUTE}
    return kinds.pop() if len(kinds) == 1 else row.kind
