# SPDX-License-Identifier: Apache-2.0
"""What the scripts that ask megatron-core share: a golden file is written, or compared with what they find."""
import importlib.metadata
import re
import sys


def versions():
    """Of the packages that decide."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("megatron-core", "numpy", "torch"))


def finish(path, text):
    """Writes the golden file if --write was given; else exit 1 unless it holds this text, versions apart."""
    if "--write" in sys.argv[1:]:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")
        return
    made_by = re.compile(r'"made_by": "[^"]*"')
    same = made_by.sub("", path.read_text(encoding="utf-8")) == made_by.sub("", text)
    print(f"{path.name}: " + (f"as {versions()} gives it" if same else f"NOT what {versions()} gives"))
    if not same:
        sys.exit(1)
