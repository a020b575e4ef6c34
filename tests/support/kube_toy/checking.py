"""What a real server refuses, as far as public schemas and a few written rules tell."""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from kube_toy.store import JOBS, JOBSETS, Kind, Object, Problem

NEWEST = "1.37.0"
JOBSET_CRD = Path(__file__).with_name("jobset.x-k8s.io_jobsets.yaml.gz")
_LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ANNOTATION_BYTES = 256 * 1024


def check(kind: Kind, item: Object, *, strict: bool) -> None:
    """Refuse what does not fit the schema, and names and labels that are not allowed."""
    _check_schema(kind, item, strict=strict)
    _check_meta(item["metadata"], "metadata")
    if kind is JOBS:
        _check_job(item)
    if kind is JOBSETS:
        for part in item["spec"]["replicatedJobs"]:
            _check_meta(part["template"]["spec"]["template"].get("metadata", {}), f"replicatedJobs {part['name']}")


def check_change(kind: Kind, held: Object, new: Object) -> None:
    """Refuse changes of what cannot be changed."""
    if kind is JOBS:
        for key in ("template", "completions", "completionMode", "backoffLimit"):
            started = not held["spec"].get("suspend") or "startTime" in held.get("status", {})
            if held["spec"].get(key) != new["spec"].get(key) and (started or key != "template"):
                raise _invalid(f"spec.{key}: field is immutable")
    _check_meta(new["metadata"], "metadata")


def check_schema(item: Object, version: str) -> None:
    """Strictly by Kubernetes' own schema of that version, or the JobSet CRD's. Raises jsonschema.ValidationError."""
    if item["kind"] == "JobSet":
        jsonschema.Draft202012Validator(_jobset_schema()).validate(item)
    else:
        kubernetes_validate.validate(item, version, strict=True)


@functools.cache
def _jobset_schema() -> Object:
    crd = yaml.safe_load(gzip.decompress(JOBSET_CRD.read_bytes()))
    schema: Object = _closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    # A CRD's schema says nothing about them but that they are there.
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def _closed(schema: Any) -> Any:
    """The same without room for unknown fields, and with IntOrString as JSON Schema writes it."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def _check_schema(kind: Kind, item: Object, *, strict: bool) -> None:
    if not strict:
        return
    try:
        check_schema({"apiVersion": kind.group_version, "kind": kind.kind, **item}, NEWEST)
    except jsonschema.ValidationError as exc:
        raise Problem(400, "BadRequest", f"{kind.kind} in version {kind.group_version} cannot be handled: "
                      f"{'.'.join(map(str, exc.path))}: {exc.message[:300]}") from None


def _check_meta(meta: Object, where: str) -> None:
    for name in filter(None, (meta.get("name"),)):
        if not _NAME.fullmatch(name):
            raise _invalid(f"{where}.name: Invalid value: {json.dumps(name)}: a lowercase RFC 1123 subdomain")
    for key, value in (meta.get("labels") or {}).items():
        if not isinstance(value, str) or not _LABEL.fullmatch(value):
            raise _invalid(f"{where}.labels: Invalid value: {json.dumps(value)[:80]}: a valid label must be … ({key})")
    size = sum(len(key) + len(value.encode(errors="replace")) for key, value in (meta.get("annotations") or {}).items())
    if size > _ANNOTATION_BYTES:
        raise _invalid(f"{where}.annotations: Too long: may not be more than {_ANNOTATION_BYTES} bytes")


def _check_job(item: Object) -> None:
    spec = item["spec"]
    template = spec["template"]
    _check_meta(template.get("metadata", {}), "spec.template.metadata")
    last = f"{item['metadata']['name']}-{max(0, spec.get('completions', 1) - 1)}"
    if spec.get("completionMode") == "Indexed" and not _LABEL_NAME.fullmatch(last):
        raise _invalid(f"metadata.name: Invalid value: the hostname {last} of a pod is no DNS label")
    if template["spec"].get("restartPolicy") not in ("Never", "OnFailure"):
        raise _invalid("spec.template.spec.restartPolicy: Required value: valid values: OnFailure, Never")
    if spec.get("podFailurePolicy") and spec.get("podReplacementPolicy", "Failed") != "Failed":
        raise _invalid("spec.podReplacementPolicy: Only Failed is allowed with podFailurePolicy")
    for term in (template["spec"].get("affinity") or {}).get("nodeAffinity", {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ()):
        if any(len(field["values"]) != 1 for field in term.get("matchFields", ())):
            raise _invalid("matchFields: must have one element")


def _invalid(message: str) -> Problem:
    return Problem(422, "Invalid", message)
