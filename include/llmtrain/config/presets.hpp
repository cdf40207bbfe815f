// SPDX-License-Identifier: Apache-2.0
/// Published model shapes by name (`model.preset`), and what `model.family` implies.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace llmtrain {

/// A name and the keys of `model` that it sets, as a YAML flow map.
struct Preset {
  std::string_view name;
  std::string_view model;
};

std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);
/// What a family sets that is not the default of its key; nullptr if that is nothing.
const Preset* find_family(std::string_view name);
/// "" (no preset) and every preset's name.
std::vector<std::string_view> preset_names();

}  // namespace llmtrain
