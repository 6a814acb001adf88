# SPDX-License-Identifier: Apache-2.0
"""Text in, text out: what stands between documents and the HDF5 files that pecia reads and writes."""

VERSION = "0.2.0"  # the project's
