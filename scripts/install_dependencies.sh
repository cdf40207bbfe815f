#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian or Ubuntu packages that llmtrain is built from; does nothing where all are there.
# usage: install_dependencies.sh [--check] [PACKAGE...]; --check only says what is missing (exit 1) and how to bring it;
# PACKAGE...: further packages wanted, as clang-format.
set -euo pipefail

libraries=(libopenmpi-dev libhdf5-dev libboost-program-options-dev libyaml-cpp-dev doctest-dev libdnnl-dev libfmt-dev
  libxxhash-dev libsimdjson-dev libhwloc-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev)
# Tools count as there when their command is, wherever it came from: "command package".
tools=("mpirun openmpi-bin" "h5dump hdf5-tools" "pkg-config pkg-config" "cmake cmake" "g++ g++" "make make"
  "python3 python3")

check=no
if [[ ${1-} == --check ]]; then
  check=yes
  shift
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install_dependencies: no Debian packages on this system; see the list in ${BASH_SOURCE[0]}" >&2
  exit 0  # the build itself says what it does not find
fi

missing=()
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${libraries[@]}" "$@" 2>/dev/null || true)"
for package in "${libraries[@]}" "$@"; do
  [[ $installed == *" installed:$package "* ]] || missing+=("$package")
done
for tool in "${tools[@]}"; do
  command -v "${tool% *}" >/dev/null || missing+=("${tool#* }")
done
((${#missing[@]} > 0)) || exit 0

if [[ $check == yes || $EUID -ne 0 ]]; then
  echo "missing packages: ${missing[*]}; as root: scripts/install_dependencies.sh${*:+ $*}" >&2
  exit 1
fi

export DEBIAN_FRONTEND=noninteractive
install_missing() {
  apt-get install -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "${missing[@]}" </dev/null
}
echo "installing ${missing[*]}"
# A bare system has no package lists, and old lists name files that are gone: both are cured by an update.
if ! apt-cache show "${missing[@]}" >/dev/null 2>&1 || ! install_missing; then
  apt-get update
  install_missing
fi
