#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A throw-away Slurm cluster on one machine: a slurmd per node n1…nN, in racks below one spine (topology/tree),
# each with a host name of its own.
#
#   sandbox.sh start DIR --port P [--nodes N] [--racks R] [--cpus C] [--gpus G] [--owner PID]
#   sandbox.sh stop DIR
#   sandbox.sh kill-node DIR nK      what a power cut looks like: daemon, its steps and their tasks vanish
#   sandbox.sh start-node DIR nK     brings it back
#
# Everything is under DIR, whose path must be short (sockets in it have at most 108 bytes). SLURM_CONF=DIR/slurm.conf
# makes sbatch and the rest speak to it. GPUs are files that Slurm counts and hands out as devices. It takes the ports P to P+N. With --owner it stops when that process is gone.
# Needs root (namespaces), munge and Slurm 22.05 or newer.
set -euo pipefail

usage() {
  sed -n '/^#!/d; /^# SPDX-/d; /^set -/q; s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
die() {
  echo "sandbox: $*" >&2
  exit 1
}
(($# >= 2)) || usage
verb=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
shift 2
nodes=4 racks=2 cpus=4 gpus=0 port=0 owner=0 node=''
if [[ $verb != start ]]; then
  # shellcheck source=/dev/null
  source "$dir/parameters"
fi
while (($# > 0)); do
  case $1 in
    --nodes | --racks | --cpus | --gpus | --port | --owner)
      printf -v "${1#--}" %d "$2"
      shift
      ;;
    n[0-9]*) node=$1 ;;
    *) usage ;;
  esac
  shift
done
export PATH=$PATH:/usr/sbin:/sbin SLURM_CONF=$dir/slurm.conf
munge_socket=$dir/munge.socket

# A zombie, or a stranger that got the id, counts as dead.
is_alive() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && grep -qE '^(munged|slurmctld|slurmd)$' "/proc/$pid/comm" 2>/dev/null &&
    ! grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null
}
wait_for() {
  local tenths=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tenths-- > 0)) || return 1
    sleep 0.1
  done
}
is_dead() { ! is_alive "$1"; }
end_daemon() {
  if is_alive "$1"; then
    kill -TERM "$(cat "$1")"
    wait_for 10 is_dead "$1" || kill -KILL "$(cat "$1")"
  fi
  rm -f "$1"
}

# The racks are as even as possible, the first ones larger.
rack_of() { echo $((($1 - 1) * racks / nodes + 1)); }

write_configuration() {
  local host user number rack members gres=''
  host=$(hostname -s)
  user=$(id -un)
  mkdir -p "$dir"/{state,run,log,spool,tmp}
  # cred_expire is also how long a requeued job waits, two minutes by default. %n in TmpFS: Slurm's PMIx keeps folders
  # of steps there, which the nodes would share. SlurmdTimeout: a dead node is to be noticed soon.
  cat >"$SLURM_CONF" <<CONF
ClusterName=sandbox
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$munge_socket,cred_expire=5
StateSaveLocation=$dir/state
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmdSpoolDir=$dir/spool/%n
TmpFS=$dir/tmp/%n
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
TopologyPlugin=topology/tree
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=5
MinJobAge=3600
SlurmctldTimeout=60
SlurmdTimeout=10
MessageTimeout=10
PropagateResourceLimits=NONE
CONF
  if ((gpus > 0)); then
    gres="Gres=gpu:$gpus"
    mkdir -p "$dir/gpus"
    for ((number = 0; number < gpus; ++number)); do touch "$dir/gpus/gpu$number"; done
    echo "GresTypes=gpu" >>"$SLURM_CONF"
    echo "Name=gpu File=$dir/gpus/gpu[0-$((gpus - 1))]" >"$dir/gres.conf"
  fi
  echo "127.0.0.1 localhost $host" >"$dir/hosts"
  for ((number = 1; number <= nodes; ++number)); do
    echo "NodeName=n$number NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + number)) CPUs=$cpus $gres State=UNKNOWN"
    echo "127.0.0.1 n$number" >>"$dir/hosts"
  done >>"$SLURM_CONF"
  echo "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >>"$SLURM_CONF"

  for ((rack = 1; rack <= racks; ++rack)); do
    members=$(for ((number = 1; number <= nodes; ++number)); do
      if (($(rack_of "$number") == rack)); then echo "n$number"; fi
    done | paste -sd,)
    echo "SwitchName=rack$rack Nodes=$members"
  done >"$dir/topology.conf"
  echo "SwitchName=spine Switches=rack[1-$racks]" >>"$dir/topology.conf"
  # Cgroups are not used; naming version 1 keeps slurmd from probing what is mounted.
  echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
  declare -p nodes racks cpus gpus port | sed 's/^declare -[-i]* //' >"$dir/parameters"
}

# In a UTS namespace of its own, as Open MPI names its shared memory by host; /etc/hosts there knows all nodes.
start_slurmd() {
  mkdir -p "$dir/spool/$1" "$dir/tmp/$1"
  # shellcheck disable=SC2016
  unshare --uts --mount sh -c 'mount --bind "$2" /etc/hosts && hostname "$1" && exec slurmd -N "$1"' \
    sh "$1" "$dir/hosts"
}
all_nodes_up() { (($(sinfo --noheader --Node --states=idle,alloc,mix --format=%N | sort -u | wc -l) == nodes)); }

start() {
  local number tool
  for tool in munged slurmctld slurmd sbatch unshare; do
    command -v "$tool" >/dev/null || die "$tool is not installed (Debian: apt install slurm-wlm munge)"
  done
  ((port > 0 && racks >= 1 && racks <= nodes)) || usage
  write_configuration
  (umask 077 && head -c 128 /dev/urandom >"$dir/munge.key")
  munged --force --key-file="$dir/munge.key" --socket="$munge_socket" --pid-file="$dir/run/munged.pid" \
    --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed" --num-threads=2
  if ((owner > 0)); then (setsid "$0" guard "$dir" --owner "$owner" </dev/null &>"$dir/log/guard.log" &); fi
  slurmctld
  wait_for 60 scontrol ping || die "slurmctld does not answer; see $dir/log"
  for ((number = 1; number <= nodes; ++number)); do
    start_slurmd "n$number" || die "slurmd n$number did not start; see $dir/log"
  done
  wait_for 120 all_nodes_up || die "the nodes did not come up; see $dir/log"
}

no_job_left() { [[ -z $(squeue --noheader --states=R,CG,S,CF) ]]; }
stop() {
  local job number
  if is_alive "$dir/run/slurmctld.pid"; then
    for job in $(squeue --noheader --format=%A | sort -u); do
      scancel --full --signal=KILL "$job" 2>/dev/null || true
      scancel "$job" 2>/dev/null || true
    done
    wait_for 15 no_job_left || true
  fi
  for ((number = 1; number <= nodes; ++number)); do
    kill_node "n$number"
  done
  end_daemon "$dir/run/slurmctld.pid"
  end_daemon "$dir/run/munged.pid"
}

descendants() {
  local child
  for child in $(ps -o pid= --ppid "$1"); do
    echo "$child"
    descendants "$child"
  done
}
# A node's step daemons, also those whose slurmd is gone, share its UTS namespace.
kill_node() {
  local pid_file=$dir/run/slurmd.$1.pid pid step doomed
  is_alive "$pid_file" || return 0
  pid=$(cat "$pid_file")
  doomed=("$pid")
  for step in $(pgrep -x slurmstepd || true); do
    if [[ $(readlink "/proc/$step/ns/uts") == "$(readlink "/proc/$pid/ns/uts")" ]]; then
      mapfile -t -O "${#doomed[@]}" doomed < <(echo "$step" && descendants "$step")
    fi
  done
  kill -KILL "${doomed[@]}" 2>/dev/null || true
  rm -f "$pid_file"
}

case $verb in
  start) start ;;
  stop) stop ;;
  guard)
    while kill -0 "$owner" 2>/dev/null; do sleep 1; done
    stop
    ;;
  kill-node | start-node)
    [[ $node ]] || usage
    if [[ $verb == kill-node ]]; then kill_node "$node"; else start_slurmd "$node"; fi
    ;;
  *) usage ;;
esac
