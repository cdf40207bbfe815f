// SPDX-License-Identifier: Apache-2.0
/// Opens libllmtrain_cuda.so, in which all CUDA code and libraries are, when a GPU is asked for. The module's references to
/// the seam's base classes are resolved by the program, which exports its symbols.
#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/backend/software.hpp"

namespace llmtrain {

namespace {

constexpr const char* module_name = "libllmtrain_cuda.so";

struct Module {
  std::string why_not;  ///< empty: the rest is valid
  Device* (*make_device)(const CudaOptions*) = nullptr;
  const char* (*software)() = nullptr;
};

/// Beside the program; tests lie one folder below it.
std::filesystem::path find_module() {
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const std::filesystem::path& place : {folder, folder.parent_path()}) {
    if (std::filesystem::exists(place / module_name, none)) return place / module_name;
  }
  return {};
}

Module open_module() {
  Module module;
  const std::filesystem::path path = find_module();
  if (path.empty()) {
    module.why_not = std::string("this build has no CUDA module: ") + module_name + " is not beside the program";
    return module;
  }
  // The driver first: its absence is the usual reason, and cheaper to find than the module's libraries are to load.
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    module.why_not = "no NVIDIA driver: libcuda.so.1 is not found";
    return module;
  }
  void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the rest of the process
  if (opened == nullptr) {
    module.why_not = fmt::format("{} cannot be opened: {}", path.string(), dlerror());
    return module;
  }
  const auto why_not = reinterpret_cast<const char* (*)()>(dlsym(opened, "llmtrain_cuda_why_not"));
  module.make_device = reinterpret_cast<decltype(module.make_device)>(dlsym(opened, "llmtrain_cuda_make_device"));
  module.software = reinterpret_cast<decltype(module.software)>(dlsym(opened, "llmtrain_cuda_software"));
  if (why_not == nullptr || module.make_device == nullptr || module.software == nullptr) {
    module.why_not = path.string() + " belongs to another version of the program: build it again";
  } else {
    module.why_not = why_not();
  }
  return module;
}

const Module& cuda_module() {
  static const Module module = open_module();
  return module;
}

}  // namespace

std::string why_no_cuda() { return cuda_module().why_not; }

std::string cuda_software() { return why_no_cuda().empty() ? cuda_module().software() : ""; }

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  require(why_no_cuda().empty(), ExitCode::configuration, "run.device cuda: {}; use run.device cpu", why_no_cuda());
  return std::unique_ptr<Device>(cuda_module().make_device(&options));
}

}  // namespace llmtrain
