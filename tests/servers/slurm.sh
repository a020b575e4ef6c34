#!/usr/bin/env bash
# A real Slurm cluster on this machine, all its files in a folder of its own. As root.
#   slurm.sh up DIR [NODES=4]   munge, slurmctld and one slurmd a node on loopback: n1, n2, ... with 8 made-up GPUs each,
#                               one half under each of two leaves, and c1, a cloud node that sleeps until it is woken
#   slurm.sh start DIR NODE     starts that node's slurmd
#   slurm.sh cut DIR NODE       ends it with every process it started, as a power cut would
#   slurm.sh down DIR           ends everything
# Its clients need SLURM_CONF=DIR/slurm.conf. PORT (17100) is the first of the ports it takes.
set -euo pipefail

dir=$(realpath -m "${2:?slurm.sh COMMAND DIR}")
port=${PORT:-17100}
export SLURM_CONF=$dir/slurm.conf

alive() { # alive PID: a corpse that nobody has collected is not
  case $(ps -o stat= -p "$1" 2>/dev/null || true) in '' | Z*) return 1 ;; esac
}

end() { # end SIGNAL PIDFILE
  local pid
  pid=$(cat "$2" 2>/dev/null) || return 0
  kill -"$1" "$pid" 2>/dev/null || true
  for _ in $(seq 100); do alive "$pid" || break; sleep 0.05; done
  rm -f "$2"
}

tree() { # tree PID: it and all below it
  local child
  echo "$1"
  for child in $(ps -o pid= --ppid "$1"); do tree "$child"; done
}

configure() { # configure NODES
  local nodes=$1 half=$(($1 / 2))
  cat >"$SLURM_CONF" <<CONF
ClusterName=gangline
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,bf_resolution=10,batch_sched_delay=0
PriorityType=priority/basic
PrivateData=cloud
TopologyPlugin=topology/tree
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=5
MessageTimeout=5
KillWait=5
MinJobAge=120
SuspendProgram=$dir/suspend
ResumeProgram=$dir/resume
SuspendTime=86400
SuspendExcParts=train
SuspendTimeout=5
ResumeTimeout=60
NodeName=DEFAULT CPUs=8 Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=32000 Gres=gpu:h100:8
NodeName=n[1-$nodes] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] State=UNKNOWN
NodeName=c1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((port + nodes + 1)) State=CLOUD
PartitionName=train Nodes=n[1-$nodes] Default=YES MaxTime=INFINITE DefMemPerCPU=1000
PartitionName=cloud Nodes=c1 MaxTime=INFINITE DefMemPerCPU=1000
CONF
  cat >"$dir/topology.conf" <<CONF
SwitchName=leaf1 Nodes=n[1-$half]
SwitchName=leaf2 Nodes=n[$((half + 1))-$nodes],c1
SwitchName=spine Switches=leaf[1-2]
CONF
  cat >"$dir/gres.conf" <<CONF
AutoDetect=off
NodeName=n[1-$nodes],c1 Name=gpu Type=h100 File=$dir/dev/gpu[0-7]
CONF
  echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
  local verb what
  for verb in resume suspend; do # slurmctld runs them without any PATH
    [ $verb = resume ] && what=start || what=cut
    { echo '#!/bin/sh'
      echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
      printf 'for node in $(scontrol show hostnames "$1"); do %q %s %q "$node" </dev/null >/dev/null 2>&1; done\n' "$(realpath "$0")" $what "$dir"
    } >"$dir/$verb"
  done
  chmod 755 "$dir/resume" "$dir/suspend"
}

up() { # up NODES
  mkdir -p "$dir"/{run,log,dev}
  mkdir -p -m 700 "$dir/state"
  for i in $(seq "$1"); do mkdir -p "$dir/spool/n$i"; done # slurmd makes none of its own
  mkdir -p "$dir/spool/c1"
  for i in $(seq 0 7); do [ -c "$dir/dev/gpu$i" ] || mknod -m 666 "$dir/dev/gpu$i" c 1 3; done
  configure "$1"
  install -d -o munge -g munge -m 755 "$dir/munge"
  head -c 128 /dev/urandom >"$dir/munge/key"
  chown munge:munge "$dir/munge/key"
  chmod 400 "$dir/munge/key"
  runuser -u munge -- munged --force --num-threads=2 --socket="$dir/munge/socket" --key-file="$dir/munge/key" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  slurmctld -c
  for i in $(seq "$1"); do start "n$i"; done
  for _ in $(seq 300); do
    [ "$(sinfo -h -N -p train -t idle -o %N 2>/dev/null | wc -l)" = "$1" ] && return
    sleep 0.1
  done
  echo "slurm.sh: the nodes do not become idle" >&2
  sinfo -N -l >&2
  tail -5 "$dir"/log/*.log >&2
  return 1
}

start() { # start NODE; the cloud node claims that its machine has just booted, else it is not believed to be woken
  if [ "$1" = c1 ]; then slurmd -b -N "$1"; else slurmd -N "$1"; fi
}

steps() { # steps NODE: the processes of all jobs there; a slurmstepd is known by its daemon's log, which it holds
  local pid
  for pid in $(pgrep -x slurmstepd || true); do
    if readlink /proc/"$pid"/fd/* 2>/dev/null | grep -qxF "$dir/log/$1.log"; then tree "$pid"; fi
  done
}

cut_off() { # cut_off NODE
  local doomed
  doomed=$(steps "$1")
  end KILL "$dir/run/$1.pid"
  for pid in $doomed $(steps "$1"); do kill -KILL "$pid" 2>/dev/null || true; done
}

down() {
  end TERM "$dir/run/slurmctld.pid"
  for spool in "$dir"/spool/*; do cut_off "$(basename "$spool")"; done
  end TERM "$dir/munge/pid"
}

case ${1:-} in
  up) up "${3:-4}" ;;
  start) start "${3:?}" ;;
  cut) cut_off "${3:?}" ;;
  down) down ;;
  *) echo "slurm.sh: up, start, cut or down" >&2; exit 2 ;;
esac
