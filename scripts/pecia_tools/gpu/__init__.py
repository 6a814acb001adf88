# SPDX-License-Identifier: Apache-2.0
"""What gpu-check.sh and check-cuda.sh call: goldens, tables, and what is in compiled kernels."""
