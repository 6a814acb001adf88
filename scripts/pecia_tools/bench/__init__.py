# SPDX-License-Identifier: Apache-2.0
"""Measurements: `scripts/bench NAME`, and the models and prompts that they need."""
