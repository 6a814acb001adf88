# SPDX-License-Identifier: Apache-2.0
"""Results to texts, JSONL and tables."""
