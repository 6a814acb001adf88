#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For clusters that forbid `scontrol requeue`: queues several jobs of pecia.sbatch that run one after the other,
# each continuing where the one before it was stopped. The one that finishes cancels the rest.
#
#   jobs/slurm/chain.sh COUNT JOB.yaml [OPTIONS OF sbatch]      from the repository root
#
# Prints the ids of the jobs. To cancel all: scancel --name=NAME, with the name that squeue shows for them.
set -euo pipefail

if (($# < 2)) || [[ ! $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: jobs/slurm/chain.sh COUNT JOB.yaml [OPTIONS OF sbatch]" >&2
  exit 2
fi
count=$1 job_file=$2
shift 2

# `singleton`: of the jobs of one name and user only one runs at a time, however the one before it ended.
PECIA_CHAIN=pecia-$(date +%Y%m%d-%H%M%S)-$$
export PECIA_CHAIN
for ((number = 0; number < count; ++number)); do
  sbatch --parsable --job-name="$PECIA_CHAIN" --dependency=singleton --no-requeue "$@" \
    jobs/slurm/pecia.sbatch "$job_file"
done
