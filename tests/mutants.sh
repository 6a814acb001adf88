#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants the faults of tests/mutants/faults.txt one by one in a copy of the committed tree, and says which test finds
# each. The copy is a git worktree below build/mutants, so that no fault is ever in the files that you work on.
#
#   tests/mutants.sh [FAULT…] [--list] [--limit SECONDS] [--table FILE]
#
#   FAULT    the number of a fault, or a part of its name; without any all faults are planted
#   --list   prints the faults and their files, and plants none
#   --limit  stops each test after SECONDS, if its own time limit is longer
#   --table  writes the results as a Markdown table; one that is there already keeps its other rows
#
# Exit code 1: a fault was not found, does not fit its file or does not compile, or a test fails without any fault.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
exec python3 "$root/tests/mutants/mutants.py" "$@"
