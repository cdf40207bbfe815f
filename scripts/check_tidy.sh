#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy (.clang-tidy) over the C++ files of src/ and kernels/, as many at once as there are cores.
# usage: check_tidy.sh [BUILD] [FILE...]; BUILD is a configured build folder (build)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build}
shift || true
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(find src kernels -name '*.cpp' -not -path '*/cuda/*' | sort)
fi

# clang does not look where GCC keeps omp.h; its own headers stay first. Its compiler warnings are not asked for here.
gcc_headers=$(g++ -print-file-name=include)
if ! printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" \
    clang-tidy -p "$build" --quiet --extra-arg="-idirafter$gcc_headers" --extra-arg=-Wno-error 2>/dev/null
then
  echo "check_tidy: see above; mend it, or end a line that is right with // NOLINT(check-name): why" >&2
  exit 1
fi
echo "check_tidy: ${#files[@]} files, nothing to mend"
