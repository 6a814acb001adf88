#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shaped_network.sh NODE_MBIT RACK_MBIT COMMAND…: runs COMMAND where mpirun reaches four servers, n1 to n4, each a
# network namespace of this machine with a link of its own; n1 and n2 are in one rack, n3 and n4 in another. What leaves
# a server is limited to NODE_MBIT, what leaves or enters a rack to RACK_MBIT.
# Everything is in namespaces of this process: nothing stays behind when it ends.
set -euo pipefail
servers=4 network=10.177.0

die() {
  echo "shaped_network: $*" >&2
  exit 2
}

rack_of() { echo $((($1 + 1) / 2)); }

# limit NAMESPACE DEVICE MBIT: shapes what leaves by the device; "" is the namespace of this process. A burst below
# most messages, so that these are as slow as the link.
limit() {
  local enter=()
  if [[ -n $1 ]]; then enter=(ip netns exec "$1"); fi
  "${enter[@]}" tc qdisc add dev "$2" root tbf rate "$3mbit" burst 96kb limit 8mb
}

link_up() {
  local rack server
  mkdir -p /run/netns
  mount -t tmpfs none /run/netns
  ip link set lo up
  ip link add spine type bridge
  ip addr add "$network.254/24" dev spine
  ip link set spine up
  for rack in 1 2; do
    ip link add "rack$rack" type bridge
    ip link set "rack$rack" up
    ip link add "up$rack" type veth peer name "down$rack"
    ip link set "up$rack" master "rack$rack" up
    ip link set "down$rack" master spine up
    limit "" "up$rack" "$rack_mbit"
    limit "" "down$rack" "$rack_mbit"
  done
  for server in $(seq "$servers"); do
    ip netns add "n$server"
    ip -n "n$server" link set lo up
    ip link add "n$server" type veth peer name eth0 netns "n$server"
    ip link set "n$server" master "rack$(rack_of "$server")" up
    ip -n "n$server" addr add "$network.$server/24" dev eth0
    ip -n "n$server" link set eth0 up
    limit "n$server" eth0 "$node_mbit"
  done
}

# mpirun starts its daemons by this instead of ssh: AGENT HOST COMMAND.
write_agent() {
  cat >"$scratch/agent" <<'AGENT'
#!/bin/sh
server=$1
shift
exec ip netns exec "$server" unshare --uts sh -c 'hostname "$1"; exec sh -c "$2"' sh "$server" "$*"
AGENT
  chmod +x "$scratch/agent"
}

if [[ ${1:-} != --inside ]]; then
  if (($# < 3)); then die "usage: shaped_network.sh NODE_MBIT RACK_MBIT COMMAND…"; fi
  if ((EUID != 0)); then die "needs root: it makes network namespaces. Nothing was done"; fi
  for tool in ip tc unshare mpirun; do
    command -v "$tool" >/dev/null || die "$tool not found. On Debian: apt-get install iproute2 util-linux openmpi-bin"
  done
  exec unshare --net --mount --uts "$0" --inside "$@"
fi

node_mbit=$2 rack_mbit=$3
shift 3
hostname head
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
link_up
write_agent
{
  echo "127.0.0.1 localhost"
  echo "$network.254 head"
  for server in $(seq "$servers"); do echo "$network.$server n$server"; done
} >"$scratch/hosts"
mount --bind "$scratch/hosts" /etc/hosts
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent="$scratch/agent" OMPI_MCA_oob_tcp_if_include="$network.0/24"
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include="$network.0/24" OMPI_MCA_rmaps_base_oversubscribe=1
"$@"
