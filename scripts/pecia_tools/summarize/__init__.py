# SPDX-License-Identifier: Apache-2.0
"""Books to summaries, in rounds of `pecia run`."""
