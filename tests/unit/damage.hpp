// SPDX-License-Identifier: Apache-2.0
/// Checkpoints with one process, and ways to spoil them.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "checkpoint_fixture.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"
#include "llmtrain/tools/tool.hpp"

namespace checkpoint_test {

namespace fs = std::filesystem;
using llmtrain::Error;
using llmtrain::examine_checkpoint;
using llmtrain::Manifest;
using llmtrain::ManifestFile;
using llmtrain::MpiComm;
using llmtrain::read_manifest;
using llmtrain::save_checkpoint;
using llmtrain::SaveResult;
using llmtrain::tool_checkpoint;
using llmtrain::write_manifest;

inline const MpiComm alone;

/// Exit code of an action, 0 where it throws no Error; its message goes to `message`.
template <class Action>
int code_of(Action action, std::string* message = nullptr) {
  try {
    action();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return static_cast<int>(error.code());
  }
  return 0;
}

inline SaveResult save_at(const fs::path& folder, std::int64_t step, std::int64_t keep = 10) {
  const Shard shard = shard_of(0, 1, 1, true);
  return save_checkpoint(alone, folder, state_at(step), shard.pieces, {keep, true, {}, false});
}

/// Exit code of `llmtrain checkpoint ARGUMENTS`.
inline int tool(std::vector<std::string> args) {
  int result = 0;
  const int code = code_of([&] { result = tool_checkpoint(MpiComm{}, args); });
  return code != 0 ? code : result;
}

/// Opens a step and loads it in one pass, as a run does.
inline int load_at_once(const fs::path& folder, const Shard& into, std::string* message = nullptr) {
  return code_of([&] { load_checkpoint(alone, open_checkpoint(alone, folder, llmtrain::Files::at_load), into.pieces); },
                 message);
}

/// Makes the manifest one of format 1.0, which leaves it to HDF5 where bytes lie.
inline void forget_places(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  manifest.deck.reset();
  manifest.pieces.clear();
  spill(folder / "manifest.json", write_manifest(manifest));
}

inline void flip(const fs::path& file, std::size_t bit) {
  std::string bytes = slurp(file);
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  spill(file, bytes);
}

/// Makes the manifest agree with changed files, as somebody who means harm would.
inline void sign(const fs::path& folder) {
  Manifest manifest = read_manifest(folder);
  for (ManifestFile& file : manifest.files) file.size = static_cast<std::int64_t>(fs::file_size(folder / file.name));
  spill(folder / "manifest.json", write_manifest(manifest));
  for (const std::string& problem : examine_checkpoint(alone, folder).problems) {
    const auto at = problem.find("(digest ");
    REQUIRE(at != std::string::npos);
    for (ManifestFile& file : manifest.files) {
      if (problem.starts_with(file.name + " ")) file.digest = problem.substr(at + 8, 32);
    }
  }
  spill(folder / "manifest.json", write_manifest(manifest));
  REQUIRE(examine_checkpoint(alone, folder).problems.empty());
}

/// What a program prints; it must succeed.
inline std::string run_program(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> buffer;
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), got);
  CHECK_MESSAGE(pclose(pipe) == 0, command);
  return output;
}

inline bool has_program(const char* name) {
  return std::system((std::string("command -v ") + name + " >/dev/null 2>&1").c_str()) == 0;
}

}  // namespace checkpoint_test
