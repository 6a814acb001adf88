# SPDX-License-Identifier: Apache-2.0
"""Documents and conversations to prompt shards."""
