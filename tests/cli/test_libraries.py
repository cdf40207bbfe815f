#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A CPU run opens no library of CUDA, and not our module that needs them, by the dynamic linker's own list.
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
from cli import WORK, check, finish, prepare, run  # noqa: E402

CUDA = re.compile(r"lib(llmtrain_cuda|cuda|cudart|cublas\w*|cudnn\w*|nccl|nvrtc\w*|nvidia\S*)\.so")


def loaded():
    """File names that the linker initialised in any process of the run."""
    names = set()
    for path in WORK.glob("linker.*"):
        names.update(re.findall(r"calling init: \S*/(\S+)", path.read_text()))
    return names


prepare()
os.environ.update(LD_DEBUG="libs", LD_DEBUG_OUTPUT=str((WORK / "linker").absolute()))
run(1, "cpu", "run.device=cpu", "run.stop_after=1")
names = loaded()
check(any(name.startswith("libdnnl.so") for name in names), f"the linker tells what it loads ({len(names)} libraries)")
check(not any(CUDA.match(name) for name in names), f"none of CUDA: {sorted(filter(CUDA.match, names))}")
finish()
