# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Facts of one cluster, sourced by jobs/slurm/*.sbatch. Copy it as NAME.sh and submit with PECIA_SITE=NAME.
# This one: two NUMA nodes of 32 cores, no GPU, Open MPI built with PMIx.

# Modules that the program was built with, for example: module load gcc openmpi hdf5
# Settings of the network, for example: export UCX_NET_DEVICES=mlx5_0:1

site_pecia=build/release/bin/pecia
site_container=()          # what comes before it, for example: (apptainer exec --bind /scratch pecia.sif)
site_alone=()              # what starts the program by itself, on the node of the script; see pyxis.sh
site_launcher=srun         # or mpirun: the one of the Open MPI that the program was built with
site_mpi=pmix              # of srun; srun --mpi=list shows what Slurm offers
site_launcher_options=()   # with GPUs: (--gpus-per-node=4), so that every rank sees all and picks its own
site_ranks_per_node=2      # NUMA nodes (lscpu), or GPUs
site_cpus_per_rank=32      # cores of a NUMA node, or of a node divided by its GPUs
site_max_restarts=20       # a run that never ends should not restart for ever
