# SPDX-License-Identifier: Apache-2.0
"""GGUF files to Hugging Face folders, and back for what else reads GGUF."""
