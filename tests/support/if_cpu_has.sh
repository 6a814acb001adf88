#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# if_cpu_has.sh FLAG COMMAND…: runs the command where the CPU has the flag of /proc/cpuinfo; elsewhere exits with 77,
# which CTest shows as skipped. For tests with fewer instructions than the CPU has: without more they test nothing new.
flag=$1
shift
if ! grep -qw "$flag" /proc/cpuinfo; then
  echo "skipped: this CPU has no $flag, so the test without a cap has run the same"
  exit 77
fi
exec "$@"
