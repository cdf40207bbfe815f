// SPDX-License-Identifier: Apache-2.0
/// A product against the clock, and what is said of it.
#include "llmtrain/driver/device_speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "llmtrain/backend/kernels.hpp"
#include "llmtrain/backend/workspace.hpp"
#include "llmtrain/base/clock.hpp"
#include "llmtrain/base/median.hpp"
#include "llmtrain/base/text.hpp"
#include "llmtrain/memory/arena.hpp"

namespace llmtrain {

double measure_products(Device& device, DType precision, int repeats, const std::function<void()>& together) {
  const std::int64_t side = device.kind() == DeviceKind::cuda ? 8192 : 1024;  // full speed, on every machine
  MemoryPlan plan;
  const std::int64_t temporary = std::max<std::int64_t>(kernels_workspace(device.kind()), 1);
  const Slot workspace = plan.request(Segment::scratch, "workspace", DType::uint8, {temporary});
  const Slot a = plan.request(Segment::scratch, "a", precision, {side, side});
  const Slot b = plan.request(Segment::scratch, "b", precision, {side, side});
  const Slot d = plan.request(Segment::scratch, "d", precision, {side, side});
  const Arena arena(device, plan);
  const Stream stream = device.make_stream("speed");
  Kernels& kernels = device.kernels();
  kernels.use_workspace(arena[workspace]);
  for (const Slot slot : {a, b}) kernels.init_normal(stream, arena[slot], {1, 1}, {0, 0, side}, 1);
  std::vector<double> goes;
  for (int go = 0; go <= repeats; ++go) {
    together();
    const Stopwatch watch;
    kernels.gemm(stream, GemmForm::nt, arena[d], arena[a], arena[b]);
    stream.synchronize();
    if (go > 0) goes.push_back(watch.seconds());
  }
  kernels.use_workspace({});
  const auto n = static_cast<double>(side);
  return 2 * n * n * n / median(std::move(goes));
}

std::string speed_line(double peak, const std::string& formula, const ProductRates& rates) {
  if (rates.slowest <= 0) return formula;
  const std::string slowest = si(rates.slowest, "FLOP/s"), fastest = si(rates.fastest, "FLOP/s");
  const std::string range = slowest == fastest ? slowest : slowest + " to " + fastest;
  const std::string part = peak > 0 ? fmt::format(", {:.1f} % of it", 100 * rates.slowest / peak) : "";
  return fmt::format("{}; measured {}{}", formula, range, part);
}

}  // namespace llmtrain
