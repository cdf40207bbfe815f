// SPDX-License-Identifier: Apache-2.0
/// Which groups communicate along which axis.
#include "llmtrain/parallel/exposed.hpp"

#include <algorithm>
#include <array>

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

struct Place {
  const char* group;  ///< as Parts and Boundaries name it
  double Exposed::*axis;
};

constexpr std::array places{Place{"tensor", &Exposed::tensor},       Place{"kv", &Exposed::tensor},
                            Place{"pp-forward", &Exposed::pipeline}, Place{"pp-backward", &Exposed::pipeline},
                            Place{"tied", &Exposed::pipeline},       Place{"data", &Exposed::data},
                            Place{"shard", &Exposed::data},          Place{"replicate", &Exposed::data},
                            Place{"world", &Exposed::world}};

}  // namespace

std::vector<std::pair<std::string, double>> Exposed::axes() const {
  return {{"tensor", tensor}, {"pipeline", pipeline}, {"data", data}, {"world", world}};
}

void Exposed::add(const std::string& group, double seconds) {
  const auto place = std::ranges::find(places, group, &Place::group);
  require(place != places.end(), ExitCode::internal, "group '{}' belongs to no axis", group);
  this->*place->axis += seconds;
}

Exposed by_axis(const std::map<std::string, double>& by_group) {
  Exposed exposed;
  for (const auto& [group, seconds] : by_group) exposed.add(group, seconds);
  return exposed;
}

}  // namespace llmtrain
