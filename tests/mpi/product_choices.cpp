// SPDX-License-Identifier: Apache-2.0
// ranks: 1 3
/// Algorithms of matrix products: each is timed once in a job, all ranks of one kind of device use the same, and they last
/// from run to run.
#include <doctest/doctest.h>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/files.hpp"
#include "llmtrain/driver/tuning.hpp"
#include "support/scratch_folder.hpp"

using namespace llmtrain;

namespace {

GemmKey product(std::int64_t m) {
  return {.data = DType::bf16, .data_b = DType::bf16, .result = DType::bf16, .m = m, .n = 4096, .k = 4096};
}

/// Chooses algorithms that tell who chose them.
class FakeTuner final : public GemmTuner {
 public:
  FakeTuner(int rank, std::string identity) : rank_(rank), identity_(std::move(identity)) {}
  std::string identity() const override { return identity_; }
  bool accepts(const GemmKey& key, const GemmChoice&) override { return key.m != refused; }
  GemmChoice fastest(Stream, const GemmKey& key, Tensor, Timing timing) override {
    timed.push_back(key.m);
    if (timing == Timing::settled) settled.push_back(key.m);
    return {.algorithm = {static_cast<std::uint64_t>(rank_), 0xfedcba9876543210u}, .seconds = 1e-3};
  }
  void use(const GemmChoices& choices) override { used = choices; }

  std::vector<std::int64_t> timed, settled;
  GemmChoices used;
  std::int64_t refused = 0;

 private:
  int rank_;
  std::string identity_;
};

/// As stages of a pipeline meet them: 1024 everywhere, another one on each rank, and one too small to matter.
struct Job {
  explicit Job(std::string identity = "GPU, library 1")
      : tuner(world.rank(), std::move(identity)),
        calls{{product(1024), 8}, {product(2048 + world.rank()), 2}, {product(1), 1}} {}

  ChosenProducts choose(const std::string& cache, const std::string& run = {}, bool resumed = false) {
    tuner.timed.clear();
    tuner.settled.clear();
    return choose_products({&tuner, calls, {}, {}}, world, {cache, run, resumed});
  }

  MpiComm world = MpiComm::world();
  FakeTuner tuner;
  std::map<GemmKey, std::int64_t> calls;
};

/// Rank 0's folder, by name on all ranks.
std::string shared(const MpiComm& world, const ScratchFolder& folder, const std::string& name) {
  return world.broadcast(folder / name, 0);
}

ExitCode code_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const AgreedError& error) {
    return error.code();
  }
  return ExitCode::done;
}

}  // namespace

TEST_CASE("choices are the same after they were text, of two fp8 types too") {
  GemmKey mixed = product(64);
  mixed.data = DType::fp8_e5m2;
  mixed.data_b = DType::fp8_e4m3;
  const GemmChoiceBook book{{"GPU", {{product(32), {{1, 2}, 0.5}}, {mixed, {{3}, 0}}}}};
  const std::string text = to_text(book);
  CHECK(text.find(" bf16 bf16 ") != std::string::npos);
  CHECK(text.find(" fp8_e5m2:fp8_e4m3 bf16 ") != std::string::npos);
  CHECK(parse_gemm_choices(text, "text") == book);
}

TEST_CASE("each product is timed by the lowest rank that meets it, and all use its choice") {
  Job job;
  const int size = job.world.size(), rank = job.world.rank();
  const ChosenProducts chosen = job.choose("");
  CHECK(chosen.products == 1 + size);
  CHECK(chosen.tuned == 1 + size);
  CHECK(job.tuner.timed ==
        (rank == 0 ? std::vector<std::int64_t>{1024, 2048} : std::vector<std::int64_t>{2048 + rank}));
  REQUIRE(std::ssize(job.tuner.used) == 1 + size);
  CHECK(job.tuner.used.at(product(1024)).algorithm[0] == 0);
  for (int r = 0; r < size; ++r) {
    CHECK(job.tuner.used.at(product(2048 + r)).algorithm ==
          GemmChoice{{static_cast<std::uint64_t>(r), 0xfedcba9876543210u}}.algorithm);
  }
  const double flops = 8 * product(1024).flops() + 2 * product(2048 + rank).flops();
  CHECK(chosen.flops_a_second == doctest::Approx(flops / (10 * 1e-3)));
}

TEST_CASE("products that make up much of a step are timed at a settled clock") {
  Job job;
  job.calls[product(1024)] = 1000;
  job.choose("");
  CHECK(job.tuner.settled == (job.world.rank() == 0 ? std::vector<std::int64_t>{1024} : std::vector<std::int64_t>{}));
}

TEST_CASE("no product is worth a choice") {
  Job job;
  job.calls = {{product(1), 5}};
  const ChosenProducts chosen = job.choose("");
  CHECK(chosen.products == 0);
  CHECK(job.tuner.timed.empty());
}

TEST_CASE("ranks of different devices choose for themselves") {
  const int rank = MpiComm::world().rank();
  Job job(rank == 2 ? "another GPU" : "GPU");
  job.choose("");
  CHECK(job.tuner.used.at(product(1024)).algorithm[0] == (rank == 2 ? 2 : 0));
  CHECK(job.tuner.used.contains(product(2048 + 2)) == (rank == 2));
}

TEST_CASE("a rank without a tuner: nobody chooses") {
  Job job;
  GemmTuner* const tuner = job.world.rank() == job.world.size() - 1 ? nullptr : &job.tuner;
  CHECK(choose_products({tuner, job.calls, {}, {}}, job.world, {}).products == 0);
  CHECK(job.tuner.timed.empty());
}

TEST_CASE("choices last in the cache; one that the library refuses, or that is damaged, is made again") {
  const ScratchFolder folder;
  Job job;
  const std::string cache = shared(job.world, folder, "cache");
  job.choose(cache);
  const GemmChoices first = job.tuner.used;
  CHECK(job.choose(cache).tuned == 0);
  CHECK(job.tuner.used == first);
  job.tuner.refused = 1024;
  CHECK(job.choose(cache).tuned == 1);
  job.world.barrier();
  if (job.world.rank() == 0) atomic_write(cache + "/gemm-GPU--library-1.txt", "gemm GPU, library 1\nnonsense\n");
  CHECK(job.choose(cache).tuned == 1 + job.world.size());
}

TEST_CASE("a resumed run has its own choices, whatever the cache says") {
  const ScratchFolder folder;
  Job job;
  const std::string file = shared(job.world, folder, "products.txt");
  job.choose("", file);
  const GemmChoices first = job.tuner.used;
  const std::string text = job.world.rank() == 0 ? read_file(file) : "";
  CHECK(job.choose("", file, true).tuned == 0);
  CHECK(job.tuner.used == first);

  SUBCASE("products of another layout are added") {
    job.calls[product(9999)] = 1;
    CHECK(job.choose("", file, true).tuned == 1);
    CHECK(job.choose("", file, true).tuned == 0);
  }
  SUBCASE("a new run does not look at it") { CHECK(job.choose("", file).tuned == 1 + job.world.size()); }
  SUBCASE("no file: said and made") {
    const std::string other = shared(job.world, folder, "other.txt");
    const ChosenProducts chosen = job.choose("", other, true);
    if (job.world.rank() == 0) CHECK(chosen.warning.find(other + " is not there") != std::string::npos);
    CHECK(job.choose("", other, true).tuned == 0);
  }
  SUBCASE("of another device") {
    Job moved("GPU, library 2");
    CHECK(code_of([&] { moved.choose("", file, true); }) == ExitCode::checkpoint_incompatible);
  }
  SUBCASE("damaged") {
    job.world.barrier();
    if (job.world.rank() == 0) atomic_write(file, text.substr(0, text.size() / 2));
    CHECK(code_of([&] { job.choose("", file, true); }) == ExitCode::bad_input);
  }
  job.world.barrier();
}
