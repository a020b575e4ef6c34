#!/usr/bin/env bash
# A real Ray cluster on one machine: a head on 127.0.0.10 and N raylets on 127.0.0.11 and up, each a node of its
# own with 8 CPUs and 8 made-up GPUs. Token authentication is on; the token lies in DIR/token.
#   ray.sh up DIR [N=4] [PORT=16379]
#   ray.sh node DIR I          the raylet I again, after it was killed
#   ray.sh kill DIR I          SIGKILL to the raylet I
#   ray.sh down DIR            ends every process of it; `ray stop` would end every Ray on the machine
# DIR must be short: sockets lie in it. RAY is the program, by default the one on PATH.
set -euo pipefail
cmd=$1 DIR=$(realpath -m "$2") RAY=${RAY:-ray}
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$DIR/token
# A dead raylet is noticed within a second or two, not fifteen; one that is slow to answer on a busy machine lives.
export RAY_health_check_initial_delay_ms=500 RAY_health_check_period_ms=500 RAY_health_check_timeout_ms=20000
export RAY_health_check_failure_threshold=2
unset CUDA_VISIBLE_DEVICES

raylet_pid() {  # of node I
  local pid
  for pid in $(pgrep -f "raylet/raylet .*--node_ip_address=127.0.0.$((10 + $1)) "); do
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -qF " --session_dir=$DIR/" && echo "$pid"
  done
}

node() {
  for _ in 1 2 3; do  # Ray gives a raylet 30 s to come up, which a busy machine may not keep
    "$RAY" start --address="127.0.0.10:$(cat "$DIR/port")" --node-ip-address="127.0.0.$((10 + $1))" --node-name="n$1" \
      --num-cpus=8 --num-gpus=8 --resources='{"rdma": 8}' --object-store-memory=80000000 --disable-usage-stats \
      --labels="gangline/leaf=leaf$((($1 + 1) / 2)),gangline/spine=spine1,gangline/zone=z1,ray.io/accelerator-type=H100" \
      --min-worker-port=0 --max-worker-port=0 >"$DIR/n$1.out" 2>&1 </dev/null && return
  done
  cat "$DIR/n$1.out" >&2
  return 1
}

tree() {  # every process that names DIR in its arguments, and all below them
  local found more
  found=$(pgrep -f -- "$DIR/" | grep -vx -e $$ -e $PPID || true)
  more=$found
  while [ -n "$more" ]; do
    more=$(for pid in $more; do pgrep -P "$pid" || true; done)
    found="$found $more"
  done
  for pid in $found; do [ "$pid" = $$ ] || echo "$pid"; done | sort -un
}

case $cmd in
up)
  N=${3:-4} PORT=${4:-16379}
  mkdir -p "$DIR"
  [ -s "$DIR/token" ] || (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$DIR/token")
  echo "$PORT" >"$DIR/port"
  "$RAY" start --head --node-ip-address=127.0.0.10 --port="$PORT" --node-name=head --num-cpus=0 --num-gpus=0 \
    --object-store-memory=80000000 --include-dashboard=false --disable-usage-stats --temp-dir="$DIR" \
    --min-worker-port=0 --max-worker-port=0 >"$DIR/head.out" 2>&1 </dev/null || { cat "$DIR/head.out" >&2; exit 1; }
  for i in $(seq "$N"); do node "$i"; done;;  # one after the other: raylets of one host race for a socket
node) node "$3";;
kill) kill -9 $(raylet_pid "$3");;
down)
  # Whoever wakes up as another dies must not start anything: all are stopped before the first is killed.
  pids=$(tree)
  for pid in $pids; do kill -STOP "$pid" 2>/dev/null || true; done
  for pid in $pids $(tree); do kill -9 "$pid" 2>/dev/null || true; done;;
*) echo "unknown: $cmd" >&2; exit 2;;
esac
