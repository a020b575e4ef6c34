"""Who may do what, by RBAC manifests as they are shipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Act:
    """One request: `resource` may be such as pods/log; `namespace` is "" for the whole cluster."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Rights:
    """What a service account may do by the roles that are bound to it."""

    def __init__(self, manifests: Iterable[Object], namespace: str, account: str) -> None:
        documents = list(manifests)
        roles = {(item["kind"], item["metadata"]["name"]): item["rules"] for item in documents
                 if item["kind"] in ("Role", "ClusterRole")}
        self._rules: list[tuple[str, Object]] = []
        for item in documents:
            if item["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
                continue
            for subject in item["subjects"]:
                if (subject["kind"], subject["name"], subject["namespace"]) == ("ServiceAccount", account, namespace):
                    where = item["metadata"]["namespace"] if item["kind"] == "RoleBinding" else "*"
                    role = roles[item["roleRef"]["kind"], item["roleRef"]["name"]]
                    self._rules += [(where, rule) for rule in role]
        self.used: set[Act] = set()

    def allow(self, act: Act) -> bool:
        allowed = any(
            where in ("*", act.namespace) and act.group in rule["apiGroups"] and act.resource in rule["resources"]
            and act.verb in rule["verbs"] and (not rule.get("resourceNames") or act.name in rule["resourceNames"])
            for where, rule in self._rules)
        if allowed:
            self.used.add(Act(act.verb, act.group, act.resource))
        return allowed

    def granted(self) -> set[Act]:
        """Every verb on every resource that any role gives, wherever."""
        return {Act(verb, group, resource) for _, rule in self._rules for verb in rule["verbs"]
                for group in rule["apiGroups"] for resource in rule["resources"]}
