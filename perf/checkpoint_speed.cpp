// SPDX-License-Identifier: Apache-2.0
/// Saves and loads of one rank against plain sequential files on the same disk, in turns so that both see the same
/// machine; prints Markdown for perf/records. Plain work is one thread's; the rank has those of OMP_NUM_THREADS.
///   checkpoint_speed FOLDER [GB [ROUNDS]]      files are made in FOLDER and removed (2 GB, 3 rounds)
#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "llmtrain/backend/device.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/error.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/base/median.hpp"
#include "llmtrain/checkpoint/loader.hpp"
#include "llmtrain/checkpoint/saver.hpp"

namespace llmtrain {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t block = std::size_t{4} << 20;  // bytes of one plain read or write

/// Master weights and moments of blocks of matrices of 2048 x 2048, the last one smaller.
struct State {
  std::vector<std::byte> memory;
  std::vector<Piece> pieces;

  explicit State(std::size_t bytes) : memory(bytes / 4 * 4) {
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i + 8 <= memory.size(); i += 8) {
      const std::uint64_t value = random();
      std::memcpy(&memory[i], &value, sizeof value);
    }
    constexpr std::int64_t most = 2048 * 2048;
    std::int64_t left = static_cast<std::int64_t>(memory.size() / 4);
    auto* at = reinterpret_cast<float*>(memory.data());
    for (int i = 0; left > 0; ++i) {
      const std::int64_t size = std::min(left, most);
      const char* const kind = i % 3 == 0 ? "/model" : i % 3 == 1 ? "/optimizer/exp_avg" : "/optimizer/exp_avg_sq";
      pieces.push_back(
          {fmt::format("{}/layers/{}/weight", kind, i / 3), DType::fp32, {size}, {0}, {size}, 0, size, at});
      at += size;
      left -= size;
    }
  }
};

void forget(const fs::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY));
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void write_plain(const fs::path& path, std::span<const std::byte> bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    const auto part = bytes.subspan(at, std::min(block, bytes.size() - at));
    const int error = write_all(file.get(), {reinterpret_cast<const char*>(part.data()), part.size()});
    require(error == 0, ExitCode::io_error, "writing {} failed: {}", path.string(), errno_text(error));
  }
  require(::fsync(file.get()) == 0, ExitCode::io_error, "fsync of {} failed", path.string());
}

void read_plain(const fs::path& path, std::span<std::byte> into) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY));
  for (std::size_t at = 0; at < into.size(); at += block) {
    const ReadResult got = read_full(file.get(), into.subspan(at, std::min(block, into.size() - at)));
    require(got.error == 0 && got.bytes > 0, ExitCode::io_error, "reading {} failed", path.string());
  }
}

/// Seconds of each kind of work, round after round.
class Measurements {
 public:
  template <class Work>
  void time(const std::string& name, Work work) {
    const Stopwatch watch;
    work();
    add(name, watch.seconds());
  }
  void add(const std::string& name, double seconds) { seconds_[name].push_back(seconds); }
  double operator[](const std::string& name) const { return median(seconds_.at(name)); }
  std::string all(const std::string& name) const {
    std::string text;
    for (const double value : seconds_.at(name)) text += fmt::format("{}{:.3g}", text.empty() ? "" : ", ", value);
    return text;
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
};

/// The pieces with their data in other memory, one after the other.
std::vector<Piece> pieces_in(std::span<std::byte> memory, std::vector<Piece> pieces) {
  std::size_t at = 0;
  for (Piece& piece : pieces) {
    piece.data = memory.data() + at;
    at += static_cast<std::size_t>(piece.bytes());
  }
  return pieces;
}

/// What training waits for with checkpoint.async: the copy, as a run makes it, and what is done between the phases.
void time_stall(Device& device, const fs::path& saves, const CheckpointState& facts, const State& state,
                std::span<std::byte> copy, Measurements& times) {
  const Stream stream = device.make_stream("main");
  const Stopwatch stall;
  const std::vector<Piece> pieces = pieces_in(copy, state.pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = state.pieces[i];
    device.download(stream, pieces[i].data, Tensor::dense(piece.data, piece.dtype, {piece.size()}));
  }
  times.add("stall's copy", stall.seconds());
  Save save({}, saves, facts, pieces, {1, false, {}, true});
  double waited = stall.seconds();
  for (bool done = false; !done;) {
    while (save.is_working()) ::usleep(1000);
    const Stopwatch step;
    done = save.advance();
    waited += step.seconds();
  }
  times.add("stall", waited);
}

/// Each kind of work once.
void one_round(Device& device, const fs::path& folder, const State& state, std::span<std::byte> copy,
               Measurements& times) {
  const fs::path plain = folder / "plain", saves = folder / "checkpoints";
  CheckpointState facts;
  facts.step = 1;
  facts.deck = "{}";
  times.time("copy", [&] { std::memcpy(copy.data(), state.memory.data(), copy.size()); });
  times.time("plain write", [&] { write_plain(plain, state.memory); });
  forget(plain);
  times.time("save", [&] { save_checkpoint({}, saves, facts, state.pieces, {1, false, {}, false}); });
  fs::remove_all(saves);
  times.time("save, read back", [&] { save_checkpoint({}, saves, facts, state.pieces, {1, true, {}, false}); });
  read_plain(plain, copy);  // as the shard was: what lies below this system's memory may be faster the second time
  forget(plain);
  times.time("plain read", [&] { read_plain(plain, copy); });
  forget(plain);
  forget(saves / "step-00000001" / "shard-00000.h5");
  times.time("load",
             [&] { load_checkpoint({}, open_checkpoint({}, saves, Files::at_load), pieces_in(copy, state.pieces)); });
  require(std::memcmp(copy.data(), state.memory.data(), copy.size()) == 0, ExitCode::internal,
          "loaded what was not saved");
  fs::remove_all(saves);
  time_stall(device, saves, facts, state, copy, times);
  fs::remove_all(saves);
  fs::remove(plain);
}

void measure(const fs::path& folder, std::size_t bytes, int rounds) {
  const State state(bytes);
  const int threads = omp_get_max_threads();
  const std::unique_ptr<Device> device = make_cpu_device(threads);
  const auto bytes_of_state = static_cast<std::int64_t>(state.memory.size());
  void* const memory = device->allocate(bytes_of_state, MemorySpace::pinned_host);  // as a run has it
  require(memory != nullptr, ExitCode::out_of_memory, "no memory for a copy of {} bytes", bytes_of_state);
  const std::span<std::byte> copy(static_cast<std::byte*>(memory), state.memory.size());
  Measurements times;
  for (int round = 0; round < rounds; ++round) one_round(*device, folder, state, copy, times);
  device->release(memory, MemorySpace::pinned_host);
  const double size = static_cast<double>(state.memory.size());
  fmt::print(
      "state of {:.3g} GB, {} threads, {} rounds; medians\n\n| work | seconds | GB/s | against | ratio | all rounds |\n"
      "|---|--:|--:|---|--:|---|\n",
      size / 1e9, threads, rounds);
  const auto row = [&](const char* name, const char* against) {
    fmt::print("| {} | {:.3g} | {:.3g} | {} | {:.2f} | {} |\n", name, times[name], size / 1e9 / times[name], against,
               times[against] / times[name], times.all(name));
  };
  row("copy", "copy");
  row("plain write", "plain write");
  row("plain read", "plain read");
  row("save", "plain write");
  row("save, read back", "plain write");
  row("load", "plain read");
  row("stall's copy", "copy");
  row("stall", "copy");
}

}  // namespace
}  // namespace llmtrain

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: checkpoint_speed FOLDER [GB [ROUNDS]]\n", stderr);
    return 64;
  }
  try {
    const double gigabytes = argc > 2 ? std::atof(argv[2]) : 2;
    const llmtrain::fs::path folder = llmtrain::fs::path(argv[1]) / "checkpoint-speed";
    llmtrain::fs::create_directories(folder);
    llmtrain::measure(folder, static_cast<std::size_t>(gigabytes * 1e9), argc > 3 ? std::atoi(argv[3]) : 3);
    llmtrain::fs::remove_all(folder);
    return 0;
  } catch (const llmtrain::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
