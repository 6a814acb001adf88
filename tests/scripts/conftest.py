# SPDX-License-Identifier: Apache-2.0
"""Where the helpers are found, here and in processes that tests start."""

import os
import sys
from pathlib import Path

SCRIPTS = str(Path(__file__).resolve().parents[2] / "scripts")
sys.path.insert(0, SCRIPTS)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SCRIPTS, os.environ.get("PYTHONPATH"))))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
