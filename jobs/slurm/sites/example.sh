# shellcheck shell=bash disable=SC2034
# Facts of one cluster, sourced by jobs/slurm/*.sbatch. Copy it as NAME.sh and submit with PECIA_SITE=NAME.
# This one: two NUMA nodes of 32 cores, no GPU, Open MPI built with PMIx.

# Modules that the program was built with, for example: module load gcc openmpi hdf5

site_pecia=build/release/bin/pecia
site_mpi=pmix           # srun --mpi=list shows what Slurm offers
site_ranks_per_node=2   # NUMA nodes (lscpu), or GPUs
site_cpus_per_rank=32   # cores of a NUMA node, or of a node divided by its GPUs
site_srun_options=()    # with GPUs: (--gpus-per-node=4), so that every rank sees all and picks its own
site_max_restarts=20    # a run that never ends should not restart for ever
