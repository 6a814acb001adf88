# SPDX-License-Identifier: Apache-2.0
"""What developers call: man page and completions, the README's picture, the quickstart's last lines."""
