# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Facts of a cluster with GPUs, sourced by jobs/slurm/*.sbatch. Copy it as NAME.sh and submit with PECIA_SITE=NAME.
# This one: four GPUs and 64 cores a node, InfiniBand between nodes, Open MPI built with PMIx. What `pecia doctor` says on
# a node (srun --gpus-per-node=4 … pecia doctor) tells whether these settings fit.

# Modules that the program was built with, for example: module load gcc openmpi hdf5 cuda nccl cudnn

# NCCL connects nodes by the RDMA devices beside the GPUs. Their names are in `ibv_devices`; a name is a beginning, so
# mlx5 means mlx5_0, mlx5_1 and so on. Storage and Ethernet adapters do not belong to it: ^mlx5_bond leaves one out.
export NCCL_IB_HCA=${NCCL_IB_HCA:-mlx5}
# NCCL sets its connections up over this interface, which all nodes must reach. `ip -brief addr` shows the names.
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-ib0}
# How near a network device must be for transfers without a copy (GPUDirect). PHB: below the same CPU. SYS: anywhere.
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}

site_gpus_per_node=${site_gpus_per_node:-4}
site_pecia=build/cuda/bin/pecia
site_container=()          # for example: (apptainer exec --nv --bind /scratch pecia.sif)
site_launcher=srun         # or mpirun: the one of the Open MPI that the program was built with
site_mpi=pmix
# Every rank sees all GPUs of its node and takes its own by its number there. So NCCL reaches the others' memory
# directly, which it cannot where Slurm shows each rank one GPU (--gpu-bind, --gpus-per-task).
site_launcher_options=(--gpus-per-node="$site_gpus_per_node" --gpu-bind=none)
site_ranks_per_node=$site_gpus_per_node  # one rank per GPU
site_cpus_per_rank=16                    # cores of a node divided by its GPUs
site_max_restarts=20
