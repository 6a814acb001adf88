#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For clusters that forbid `scontrol requeue`: queues several jobs of pecia.sbatch that run one after the other,
# each continuing where the one before it was stopped. The one that finishes cancels the rest.
#
#   jobs/slurm/chain.sh COUNT JOB.yaml [OPTIONS OF sbatch] [--set KEY=VALUE…] [-- OPTIONS OF pecia run]
#
# from the repository root. --set belongs to pecia run, wherever it stands.
# Prints the ids of the jobs. To cancel all: scancel --name=NAME, with the name that squeue shows for them.
set -euo pipefail

usage='usage: jobs/slurm/chain.sh COUNT JOB.yaml [OPTIONS OF sbatch] [--set KEY=VALUE…] [-- OPTIONS OF pecia run]'
if (($# < 2)) || [[ ! $1 =~ ^[1-9][0-9]*$ ]]; then
  echo "$usage" >&2
  exit 2
fi
count=$1 job_file=$2 of_sbatch=() of_run=()
shift 2
while (($# > 0)); do
  case $1 in
    --) of_run+=("${@:2}") && break ;;
    --set=*) of_run+=("$1") ;;
    --set)
      if (($# < 2)); then echo "chain.sh: --set lacks its KEY=VALUE" >&2 && exit 2; fi
      of_run+=("$1" "$2") && shift
      ;;
    *) of_sbatch+=("$1") ;;
  esac
  shift
done
# shellcheck source=jobs/slurm/read_site.sh
source jobs/slurm/read_site.sh
check_site chain.sh # now, instead of in each of the jobs

# `singleton`: of the jobs of one name and user only one runs at a time, however the one before it ended.
PECIA_CHAIN=pecia-$(date +%Y%m%d-%H%M%S)-$$
export PECIA_CHAIN
for ((number = 0; number < count; ++number)); do
  sbatch --parsable --job-name="$PECIA_CHAIN" --dependency=singleton --no-requeue "${of_sbatch[@]}" \
    jobs/slurm/pecia.sbatch "$job_file" "${of_run[@]}"
done
