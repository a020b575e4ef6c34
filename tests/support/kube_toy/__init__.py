"""A small Kubernetes in one process, for tests: an API server as clients see it, and just enough behind it.

`Store` holds objects as etcd would, `ApiServer` speaks HTTP, `Rights` enforces RBAC manifests, `Controllers` do what
Kubernetes' own do for Jobs, JobSets, owners and lost nodes, `Scheduler` binds pods, and `Kubelets` run each pod's
container as a process of this machine. It is no Kubernetes: what is not written here does not happen.

`jobset.x-k8s.io_jobsets.yaml.gz` is the CRD (v1alpha2) of the kubernetes-sigs/jobset project, Apache-2.0, unchanged.
"""
