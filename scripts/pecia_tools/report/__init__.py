# SPDX-License-Identifier: Apache-2.0
"""Run folders, and files of pecia tune and pecia plan, to pages with figures."""
