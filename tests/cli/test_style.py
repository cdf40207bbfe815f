#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of scripts/check_style.py fires on a small tree that breaks it, at its line, and a clean tree passes."""
import contextlib
import importlib.util
import io
import shutil
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "scripts" / "check_style.py"
specification = importlib.util.spec_from_file_location("check_style", CHECK)
check_style = importlib.util.module_from_spec(specification)
specification.loader.exec_module(check_style)

CPP = "// SPDX-License-Identifier: Apache-2.0\n/// A file of the test.\n"
HPP = CPP + "#pragma once\n"
HASH = "# SPDX-License-Identifier: Apache-2.0\n# A file of the test.\n"

CLEAN = {
    "src/base/a.cpp": CPP + '#include "llmtrain/base/a.hpp"\n\n/* MPI_Init and dnnl::engine in a comment */\n'
                      'const char* text() { return "H5Fopen, YAML::Load, {"; }\n' "char brace() { return '{'; }\n",
    "include/llmtrain/base/a.hpp": HPP + "\nconst char* text();\n",
    "src/backend/cpu/d.cpp": CPP + '#include <mpi.h>\n\n#include "llmtrain/base/a.hpp"\n\nint rank = MPI_PROC_NULL;\n',
    "src/base/mpi.cpp": CPP + '#include "llmtrain/base/mpi_native.hpp"\n',
    "src/data/c.cpp": CPP + '#include "llmtrain/base/a.hpp"\n\n// A class may be longer than a function.\n'
                      "class Long final : public Base<decltype(text())> {\n" + "  int x_ = 1'000;\n" * 70 + "};\n",
    "src/backend/cuda/e.cpp": CPP + "#include <cuda_runtime_api.h>\n\nint n = cudaSuccess;\n",
    "tests/mpi/f.cpp": "// SPDX-License-Identifier: Apache-2.0\n// ranks: 1 2\n/// Described after its ranks.\n",
    "scripts/tool.sh": "#!/bin/sh\n" + HASH,
    "README.md": "Reads /usr/share, writes /tmp/x and https://example.org/home/page.\n",
}

LONG_FUNCTION = "int f(int x) {\n" + "  x += 1;\n" * 60 + "  return x;\n}\n"

# (what the message says, file, its text, line)
BROKEN = [
    ("no licence line", "src/base/a.cpp", "/// Described.\n", 1),
    ("no licence line", "cmake/a.cmake", "# Described.\n", 1),
    ("no licence line", "scripts/a.sh", "#!/bin/sh\n# Described.\n", 2),
    ("no description", "src/base/a.cpp", "// SPDX-License-Identifier: Apache-2.0\nint x;\n", 2),
    ("no description", "scripts/a.py", "# SPDX-License-Identifier: Apache-2.0\n# ranks: 2\n", 2),
    ("'#pragma once'", "include/llmtrain/base/b.hpp", CPP, 3),
    ("'using namespace'", "include/llmtrain/base/b.hpp", HPP + "using namespace std;\n", 4),
    ("CUDA identifier 'cudaMalloc'", "src/model/a.cpp", CPP + "int x = cudaMalloc(1);\n", 3),
    ("CUDA header 'cuda_runtime.h'", "kernels/common/a.hpp", HPP + "#include <cuda_runtime.h>\n", 4),
    ("NCCL identifier 'ncclGroupStart'", "src/backend/cpu/a.cpp", CPP + "int x = ncclGroupStart();\n", 3),
    ("cuBLAS identifier 'cublasLtMatmul'", "src/model/a.cpp", CPP + "int x = cublasLtMatmul();\n", 3),
    ("cuDNN header 'cudnn.h'", "src/model/a.cpp", CPP + "#include <cudnn.h>\n", 3),
    ("oneDNN identifier 'dnnl'", "src/parallel/a.cpp", CPP + "dnnl::engine e;\n", 3),
    ("oneDNN header", "kernels/cuda/a.cu", CPP + "#include <oneapi/dnnl/dnnl.hpp>\n", 3),
    ("MPI header 'mpi.h'", "src/checkpoint/a.cpp", CPP + "#include <mpi.h>\n", 3),
    ("MPI header 'llmtrain/base/mpi_native.hpp'", "src/driver/a.cpp",
     CPP + '#include "llmtrain/base/mpi_native.hpp"\n', 3),
    ("MPI identifier 'MPI_Wait'", "src/base/a.cpp", CPP + "int x = MPI_Wait();\n", 3),
    ("HDF5 header 'hdf5.h'", "src/tools/a.cpp", CPP + "#include <hdf5.h>\n", 3),
    ("HDF5 identifier 'H5Fopen'", "src/tools/a.cpp", CPP + "int x = H5Fopen();\n", 3),
    ("yaml-cpp header", "src/driver/a.cpp", CPP + "#include <yaml-cpp/yaml.h>\n", 3),
    ("yaml-cpp identifier", "src/driver/a.cpp", CPP + "YAML::Node n;\n", 3),
    ("base (level 0) includes config (level 1)", "src/base/a.cpp", CPP + '#include "llmtrain/config/deck.hpp"\n', 3),
    ("backend (level 2) includes model", "kernels/cpu/a.cpp", CPP + '#include "llmtrain/model/stage.hpp"\n', 3),
    ("data includes metrics", "include/llmtrain/data/a.hpp", HPP + '#include "llmtrain/metrics/log.hpp"\n', 4),
    ("module 'extra' has no level", "src/extra/a.cpp", CPP, 1),
    ("401 lines", "tests/unit/a.cpp", CPP + "\n" * 399, 401),
    ("a function of 63 lines", "src/model/a.cpp", CPP + "namespace a {\nclass B {\n" + LONG_FUNCTION + "};\n}\n", 5),
    ("a function of 64 lines", "src/model/a.cpp", CPP + "template <class T>\n" + LONG_FUNCTION, 3),
    ("a function of 62 lines", "scripts/a.py", HASH + "def f():\n" + "    x = 1\n" * 61, 3),
    ("121 columns", "scripts/a.py", HASH + "x = '" + "x" * 115 + "'\n", 3),
    ("names a place", "README.md", "See /home/" + "me/notes.\n", 1),
]


def run(files, *flags):
    """(exit code, output) of the check over a tree of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = check_style.main(["--root", folder, *flags])
        return code, output.getvalue()


def main():
    failures = []
    code, output = run(CLEAN, "--no-format")
    if code != 0:
        failures.append(f"the clean tree: exit {code}\n{output}")
    for what, name, text, line in BROKEN:
        code, output = run({name: text}, "--no-format")
        lines = [found for found in output.splitlines() if what in found]
        if code != 1 or len(lines) != 1 or not lines[0].startswith(f"{name}:{line}: ") or "; " not in lines[0]:
            failures.append(f"expected '{name}:{line}: ...{what}...; remedy', exit 1; got exit {code}\n{output}")
    if shutil.which("clang-format"):
        style = (CHECK.parents[1] / ".clang-format").read_text(encoding="utf-8")
        code, output = run({".clang-format": style, "src/base/a.cpp": CPP + "int  x;\n"})
        if code != 1 or "src/base/a.cpp:3: not laid out" not in output:
            failures.append(f"layout: exit {code}\n{output}")
    print("\n".join(failures) if failures else f"{len(BROKEN)} rules fire")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
