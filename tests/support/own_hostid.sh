#!/bin/sh
# own_hostid.sh COMMAND…: for NCCL each rank is on a host of its own, so that several may share a GPU.
NCCL_HOSTID="pecia-${OMPI_COMM_WORLD_RANK:-0}" exec "$@"
