# SPDX-License-Identifier: Apache-2.0
"""What a run has written, as plain values: results, report and trace, and the prompt shards that it read."""
