# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Facts of a cluster of GH200 nodes, sourced by jobs/slurm/*.sbatch. Copy it as NAME.sh and submit with PECIA_SITE=NAME.
# This one: four GH200 a node, each with 72 cores (Neoverse V2), 120 GB of LPDDR5X, 96 GB of HBM3 and a network adapter of
# 200 Gb/s, as Alps (Slingshot, docs.cscs.ch), Isambard-AI (Slingshot, docs.isambard.ac.uk) and JUPITER (InfiniBand,
# apps.fz-juelich.de/jsc/hps/jupiter) describe theirs. Not tried on any of them: `srun … pecia doctor` on a node says
# whether these settings fit. Without a build for GPUs a rank runs on the cores of its superchip.

# Modules that the program was built with, or on Alps a uenv: #SBATCH --uenv=prgenv-gnu/…, --view=default

site_network=${site_network:-$([[ -e /sys/class/cxi ]] && echo slingshot || echo infiniband)}
if [[ $site_network == slingshot ]]; then
  # NCCL reaches Slingshot by the plug-in aws-ofi-nccl alone, which has to be loaded. With this name NCCL ends where the
  # plug-in is missing, and does not take TCP. CSCS gives these values for Alps.
  export NCCL_NET=${NCCL_NET:-AWS Libfabric}
  export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1} NCCL_PROTO=${NCCL_PROTO:-^LL128}
  export FI_CXI_DEFAULT_CQ_SIZE=${FI_CXI_DEFAULT_CQ_SIZE:-131072} FI_CXI_DEFAULT_TX_SIZE=${FI_CXI_DEFAULT_TX_SIZE:-32768}
  export FI_CXI_DISABLE_HOST_REGISTER=${FI_CXI_DISABLE_HOST_REGISTER:-1}
  export FI_CXI_RX_MATCH_MODE=${FI_CXI_RX_MATCH_MODE:-software} FI_MR_CACHE_MONITOR=${FI_MR_CACHE_MONITOR:-userfaultfd}
  # The program moves what is on GPUs by NCCL; MPI that does so, too, may wait for it for ever.
  export MPICH_GPU_SUPPORT_ENABLED=0
else
  export NCCL_IB_HCA=${NCCL_IB_HCA:-mlx5}
fi
export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}

site_gpus_per_node=${site_gpus_per_node:-4}
site_pecia=build/cuda/bin/pecia
site_container=()          # for example: (apptainer exec --nv --bind /scratch pecia.sif); on Alps see pyxis.sh
site_alone=()
site_launcher=srun         # or mpirun: the one of the Open MPI that the program was built with
site_mpi=pmix              # cray_shasta for Cray MPICH; srun --mpi=list shows what Slurm offers
site_launcher_options=(--gpus-per-node="$site_gpus_per_node" --gpu-bind=none)  # every rank sees all and picks its own
site_ranks_per_node=$site_gpus_per_node  # one rank per superchip
site_cpus_per_rank=72
site_max_restarts=20
