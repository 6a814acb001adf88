# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Facts of a cluster with GPUs where Slurm itself starts containers, by NVIDIA's plugin Pyxis and enroot. Copy it as NAME.sh
# and submit with PECIA_SITE=NAME. `enroot import dockerd://pecia:latest` makes the image of what scripts/container built.

# shellcheck source=jobs/slurm/sites/gpus.sh
source jobs/slurm/sites/gpus.sh

site_pecia=pecia           # in the image
container=(--container-image="${PECIA_IMAGE:-$PWD/pecia.sqsh}" --container-mounts="$PWD:$PWD" --container-workdir="$PWD")
site_launcher_options+=("${container[@]}")
site_alone=(srun --mpi=none --nodes=1 --ntasks=1 "${container[@]}")
