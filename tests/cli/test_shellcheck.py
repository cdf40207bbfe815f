#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shellcheck finds nothing in the shell scripts."""
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77

if shutil.which("shellcheck") is None:
    print("skipped: shellcheck is not installed")
    sys.exit(SKIPPED)
scripts = sorted([*ROOT.glob("jobs/*.sh"), *ROOT.glob("scripts/*.sh"), ROOT / ".ci" / "run"])
assert len(scripts) > 5, scripts
sys.exit(subprocess.run(["shellcheck", *map(str, scripts)]).returncode)
