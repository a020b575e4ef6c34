#!/usr/bin/env bash
# Installs the real servers that tests run against; what is there already is left alone. As root, on Debian.
#   tests/servers/install.sh [NAME...]     without names: all of them
set -euo pipefail

packages() { # packages PROGRAM PACKAGE...: apt's packages, unless the program is there
  command -v "$1" >/dev/null && return
  shift
  [ "${UPDATED:-}" ] || apt-get update -qq
  UPDATED=1
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

slurm() { # Debian starts no service of these where there is no init; the tests start their own
  packages slurmctld slurm-wlm slurmctld slurmd slurm-wlm-basic-plugins munge iproute2
}

ray() { # into the Python that runs the tests, or the one that PYTHON names
  "${PYTHON:-python3}" -c 'import ray' 2>/dev/null && return
  "${PYTHON:-python3}" -m pip install --quiet --disable-pip-version-check -c "$(dirname "$0")/../../constraints.txt" ray
}

ALL=(slurm ray)
[ $# -gt 0 ] || set -- "${ALL[@]}"
for name in "$@"; do
  case " ${ALL[*]} " in
    *" $name "*) "$name" ;;
    *) echo "install.sh: no server is called $name; there are: ${ALL[*]}" >&2; exit 2 ;;
  esac
done
