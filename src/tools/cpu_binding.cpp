// SPDX-License-Identifier: Apache-2.0
/// Asks hwloc where this process may run.
#include <hwloc.h>

#include <cstdlib>
#include <memory>

#include "llmtrain/tools/doctor.hpp"

namespace llmtrain {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

std::string ranges_of(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0) return {};
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  return text;
}

}  // namespace

CpuBinding cpu_binding(int device_numa_node) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return {};
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> owner(topology, hwloc_topology_destroy);
  const Bitmap cores(hwloc_bitmap_alloc()), nodes(hwloc_bitmap_alloc());
  if (hwloc_topology_load(topology) != 0 || hwloc_get_cpubind(topology, cores.get(), HWLOC_CPUBIND_PROCESS) != 0) {
    return {};
  }
  hwloc_cpuset_to_nodeset(topology, cores.get(), nodes.get());
  const bool near =
      device_numa_node < 0 || hwloc_bitmap_isset(nodes.get(), static_cast<unsigned>(device_numa_node)) != 0;
  return {ranges_of(cores.get()), ranges_of(nodes.get()), near};
}

}  // namespace llmtrain
