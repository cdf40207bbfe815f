// SPDX-License-Identifier: Apache-2.0
/// Megatron-LM's arguments of parallelism: axes, ZeRO, the split of the layers over stages and chunks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "llmtrain/base/error.hpp"
#include "megatron_arguments.hpp"

namespace llmtrain::megatron {
namespace {

constexpr std::size_t longest_layout = 100'000;

/// Writes out "(t|)*3" and "t*3"; nullopt for unbalanced brackets, bad counts or an endless text.
std::optional<std::string> written_out(std::string_view text, int depth = 0) {
  if (depth > 20) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::string unit(1, text[i]);
    if (text[i] == '(') {
      std::size_t end = i + 1;
      for (int open = 1; end < text.size() && open > 0; ++end) open += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
      if (text[end - 1] != ')') return std::nullopt;
      const std::optional<std::string> inside = written_out(text.substr(i + 1, end - i - 2), depth + 1);
      if (!inside) return std::nullopt;
      unit = *inside;
      i = end;
    } else {
      ++i;
    }
    std::int64_t times = 1;
    if (i < text.size() && text[i] == '*') {
      const std::size_t digits = std::min(text.find_first_not_of("0123456789", i + 1), text.size());
      if (digits == i + 1 || digits > i + 7) return std::nullopt;
      times = whole_number(std::string(text.substr(i + 1, digits - i - 1)), "--pipeline-model-parallel-layout");
      i = digits;
    }
    if (static_cast<std::int64_t>(out.size() + unit.size()) * std::max<std::int64_t>(times, 1) >
        static_cast<std::int64_t>(longest_layout)) {
      return std::nullopt;
    }
    for (; times > 0; --times) out += unit;
  }
  return out;
}

/// Layers of each piece of "Ett|tt|ttL", in the model's order; nullopt if a piece has none or something else than layers.
std::optional<std::vector<std::int64_t>> pieces_of(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ',' || c == ' '; }), text.end());
  const std::optional<std::string> layout = written_out(text);
  if (!layout) return std::nullopt;
  std::vector<std::int64_t> pieces(1);
  for (std::size_t i = 0; i < layout->size(); ++i) {
    const char c = layout->at(i);
    if (c == '|') {
      pieces.push_back(0);
    } else if (c == 't') {
      ++pieces.back();
    } else if (!(c == 'E' && i == 0) && !(c == 'L' && i + 1 == layout->size())) {
      return std::nullopt;
    }
  }
  const bool full = std::all_of(pieces.begin(), pieces.end(), [](std::int64_t layers) { return layers > 0; });
  return full ? std::optional(pieces) : std::nullopt;
}

void set_chunks(const Translation& t, std::int64_t chunks, const std::string& note) {
  t.draft.set("schedule.kind", std::string(chunks > 1 ? "interleaved" : "1f1b"), note);
  if (chunks > 1) t.draft.set("schedule.chunks", chunks, note);
}

void set_stage_layers(const Translation& t, const std::vector<std::int64_t>& layers, const std::string& note) {
  t.draft.set("parallel.stage_layers", fmt::format("[{}]", fmt::join(layers, ", ")), note);
}

/// Chunks a stage by either of Megatron's two arguments.
std::int64_t chunks_of(const Translation& t, std::int64_t stages) {
  const Arguments& args = t.args;
  if (args.given("num-virtual-stages-per-pipeline-rank"))
    return args.integer("num-virtual-stages-per-pipeline-rank", 1);
  const std::int64_t piece = args.integer("num-layers-per-virtual-pipeline-stage", 0);
  if (piece <= 0) return 1;
  const std::int64_t units = t.layers + (args.given("account-for-embedding-in-pipeline-split") ? 1 : 0) +
                             (args.given("account-for-loss-in-pipeline-split") ? 1 : 0);
  require(units % (stages * piece) == 0, ExitCode::bad_input,
          "{}: {} layers are not divisible by {} stages x {} layers",
          args.shown("num-layers-per-virtual-pipeline-stage"), units, stages, piece);
  return units / stages / piece;
}

/// First and last stage by their own numbers of layers, the others evenly, each cut into `chunks`.
void translate_uneven(const Translation& t, std::int64_t stages, std::int64_t chunks) {
  const Arguments& args = t.args;
  const std::string_view names[] = {"decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"};
  if (!args.given(names[0]) && !args.given(names[1])) return;
  const std::string note = args.shown(args.which({names[0], names[1]}));
  const std::int64_t first = args.integer(names[0], 0), last = args.integer(names[1], 0);
  const std::int64_t others = stages - (first > 0) - (last > 0);
  const std::int64_t rest = t.layers - first - last;
  const bool whole = others > 0 ? rest > 0 && rest % others == 0 : rest == 0;
  require(whole, ExitCode::bad_input, "{}: the other {} stages cannot share {} layers evenly", note, others, rest);
  std::vector<std::int64_t> of_stage(static_cast<std::size_t>(stages), others > 0 ? rest / others : 0);
  if (first > 0) of_stage.front() = first;
  if (last > 0) of_stage.back() = last;
  std::vector<std::int64_t> pieces;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    for (const std::int64_t layers : of_stage) {
      require(layers % chunks == 0, ExitCode::bad_input, "{}: {} layers of a stage are not divisible by {} chunks",
              note, layers, chunks);
      pieces.push_back(layers / chunks);
    }
  }
  set_stage_layers(t, pieces, note);
}

void translate_stages(const Translation& t) {
  const Arguments& args = t.args;
  const std::int64_t stages = std::max<std::int64_t>(args.integer("pipeline-model-parallel-size", 1), 1);
  if (args.given("pipeline-model-parallel-layout")) {
    const std::string note = args.shown("pipeline-model-parallel-layout");
    const auto pieces = pieces_of(args.text("pipeline-model-parallel-layout", ""));
    if (pieces && static_cast<std::int64_t>(pieces->size()) % stages == 0) {
      set_chunks(t, static_cast<std::int64_t>(pieces->size()) / stages, note);
      return set_stage_layers(t, *pieces, note);
    }
    t.lacks(note, "a piece without layers, or one that holds something else: the deck splits layers evenly");
  }
  const std::int64_t chunks = chunks_of(t, stages);
  const std::string_view why =
      args.which({"num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"});
  set_chunks(t, chunks, args.shown(why));
  translate_uneven(t, stages, chunks);
}

void translate_zero(const Translation& t) {
  const Arguments& args = t.args;
  if (args.given("use-torch-fsdp2")) {
    const bool whole = args.given("torch-fsdp2-no-reshard-after-forward");
    return t.draft.set("parallel.zero", std::int64_t{whole ? 2 : 3},
                       args.shown(whole ? "torch-fsdp2-no-reshard-after-forward" : "use-torch-fsdp2"));
  }
  const std::string_view fsdp = args.which({"use-megatron-fsdp", "use-custom-fsdp"});
  if (!args.given(fsdp)) {
    const bool sharded = args.given("use-distributed-optimizer");
    return t.draft.set("parallel.zero", std::int64_t{sharded ? 1 : 0}, args.shown("use-distributed-optimizer"));
  }
  static constexpr std::string_view strategies[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  const std::string strategy = args.text("data-parallel-sharding-strategy", "no_shard");
  const auto found = std::find(std::begin(strategies), std::end(strategies), strategy);
  require(found != std::end(strategies), ExitCode::bad_input, "{}: it is one of {}",
          args.shown("data-parallel-sharding-strategy"), fmt::join(strategies, ", "));
  t.draft.set("parallel.zero", static_cast<std::int64_t>(found - std::begin(strategies)),
              args.shown("data-parallel-sharding-strategy"));
}

void translate_instances(const Translation& t) {
  const std::int64_t instances = t.args.integer("num-distributed-optimizer-instances", 1);
  if (instances == 1) return;
  const std::string shown = t.args.shown("num-distributed-optimizer-instances");
  const std::int64_t data = t.data_ranks();
  require(instances > 0 && data % instances == 0, ExitCode::bad_input, "{}: {} data ranks are not divisible", shown,
          data);
  if (data > 0) t.draft.set("parallel.shard", data / instances, fmt::format("{} of {} data ranks", shown, data));
  if (data == 0) t.open(shown, "parallel.shard = data ranks / instances; say how many ranks there are with --ranks N");
}

}  // namespace

void translate_layout(const Translation& t) {
  const Arguments& args = t.args;
  if (args.given("model-parallel-size")) {
    t.draft.set("parallel.tensor", args.integer("model-parallel-size", 1), args.shown("model-parallel-size"));
  }
  t.draft.set("parallel.sequence", args.given("sequence-parallel"), args.shown("sequence-parallel"));
  if (args.given("use-tp-pp-dp-mapping")) {
    t.draft.set("parallel.order", std::string("tp-pp-dp"), args.shown("use-tp-pp-dp-mapping"));
  }
  translate_zero(t);
  translate_instances(t);
  translate_stages(t);
  if (args.given("ddp-bucket-size")) {
    t.draft.set("parallel.bucket", args.integer("ddp-bucket-size", 0), args.shown("ddp-bucket-size"));
  } else if (args.given("overlap-grad-reduce")) {
    const std::int64_t bucket = std::max<std::int64_t>(40'000'000, 1'000'000 * t.data_ranks());
    t.draft.set("parallel.bucket", bucket, args.shown("ddp-bucket-size") + ": at least 40e6, 1e6 a data rank");
  }
}

}  // namespace llmtrain::megatron
