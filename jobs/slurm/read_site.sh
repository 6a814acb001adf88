# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Sourced by the scripts of jobs/, from the folder that holds jobs/: reads the file of sites/ that PECIA_SITE names, or ends
# with 2 and lists those that exist.

# check_site SCRIPT: sets site_file.
check_site() {
  local folder=jobs/slurm/sites file known=''
  site_file=$folder/${PECIA_SITE:-example}.sh
  if [[ ! -f $site_file ]]; then
    for file in "$folder"/*.sh; do known+=" $(basename "$file" .sh)"; done
    echo "$1: PECIA_SITE is '${PECIA_SITE:-}', but there is no file $site_file. The sites that exist are:$known" >&2
    exit 2
  fi
  if [[ -z ${PECIA_SITE:-} ]]; then
    echo "$1: PECIA_SITE is not set, so $site_file holds: it loads no modules, and starts two ranks of 32 cores on" \
      "each node. Copy it for your cluster, and name the copy by PECIA_SITE" >&2
  fi
}

# read_site SCRIPT: sets the variables of example.sh.
read_site() {
  site_alone=() # site files that were made before it existed do not set it
  check_site "$1"
  set +u # some clusters' module command reads variables that are not set
  # shellcheck source=jobs/slurm/sites/example.sh
  source "$site_file"
  set -u
}
