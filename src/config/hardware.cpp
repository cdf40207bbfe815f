// SPDX-License-Identifier: Apache-2.0
/// The keys of hardware files, one row each, and the built-in table, which is written in them.
#include "llmtrain/config/hardware.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "llmtrain/base/error.hpp"
#include "llmtrain/config/numbers.hpp"
#include "llmtrain/config/read.hpp"
#include "llmtrain/config/suggest.hpp"
#include "tree.hpp"

namespace llmtrain {
namespace {

/// A number of a hardware file.
struct Number {
  std::string_view path;
  double& (*at)(Hardware&);
  std::string_view meaning;
};

constexpr std::array numbers{
    Number{"memory", [](Hardware& h) -> double& { return h.memory; }, "bytes of a device; 0: unknown, all fits"},
    Number{"reserved", [](Hardware& h) -> double& { return h.reserved; }, "bytes that libraries take for themselves"},
    Number{"peak.bf16", [](Hardware& h) -> double& { return h.peak.bf16; }, "FLOP/s, dense, for MFU"},
    Number{"peak.fp32", [](Hardware& h) -> double& { return h.peak.fp32; }, ""},
    Number{"peak.fp64", [](Hardware& h) -> double& { return h.peak.fp64; }, ""},
    Number{"gemm.fp8", [](Hardware& h) -> double& { return h.gemm.rate.fp8; },
           "FLOP/s of a large matrix product; 0: the processor has none"},
    Number{"gemm.bf16", [](Hardware& h) -> double& { return h.gemm.rate.bf16; }, ""},
    Number{"gemm.fp32", [](Hardware& h) -> double& { return h.gemm.rate.fp32; }, ""},
    Number{"gemm.fp64", [](Hardware& h) -> double& { return h.gemm.rate.fp64; }, ""},
    Number{"gemm.side", [](Hardware& h) -> double& { return h.gemm.side; },
           "m x n x k has rate / (1 + side / m + side / n + depth / k)"},
    Number{"gemm.depth", [](Hardware& h) -> double& { return h.gemm.depth; }, ""},
    Number{"attention_forward.bf16", [](Hardware& h) -> double& { return h.attention_forward.rate.bf16; },
           "FLOP/s of the causal half, long sequences"},
    Number{"attention_forward.fp32", [](Hardware& h) -> double& { return h.attention_forward.rate.fp32; }, ""},
    Number{"attention_forward.fp64", [](Hardware& h) -> double& { return h.attention_forward.rate.fp64; }, ""},
    Number{"attention_forward.half", [](Hardware& h) -> double& { return h.attention_forward.half; },
           "tokens of a sequence at half that rate"},
    Number{"attention_forward.head", [](Hardware& h) -> double& { return h.attention_forward.head; },
           "head_dim with half that rate, for softmax costs what it costs"},
    Number{"attention_forward.full_head", [](Hardware& h) -> double& { return h.attention_forward.full_head; },
           "smaller heads have rate x sqrt(head_dim / full_head)"},
    Number{"attention_backward.bf16", [](Hardware& h) -> double& { return h.attention_backward.rate.bf16; },
           "the same for backward, 2.5 times the FLOPs"},
    Number{"attention_backward.fp32", [](Hardware& h) -> double& { return h.attention_backward.rate.fp32; }, ""},
    Number{"attention_backward.fp64", [](Hardware& h) -> double& { return h.attention_backward.rate.fp64; }, ""},
    Number{"attention_backward.half", [](Hardware& h) -> double& { return h.attention_backward.half; }, ""},
    Number{"attention_backward.head", [](Hardware& h) -> double& { return h.attention_backward.head; }, ""},
    Number{"attention_backward.full_head", [](Hardware& h) -> double& { return h.attention_backward.full_head; }, ""},
    Number{"bandwidth", [](Hardware& h) -> double& { return h.bandwidth; }, "byte/s of the device's memory"},
    Number{"launch", [](Hardware& h) -> double& { return h.launch; }, "seconds that every operation takes besides"},
    Number{"inside.latency", [](Hardware& h) -> double& { return h.inside.latency; },
           "seconds a batch of collectives within a node, for each doubling of the group"},
    Number{"inside.bandwidth", [](Hardware& h) -> double& { return h.inside.bandwidth; },
           "byte/s that a rank sends within its node"},
    Number{"across.latency", [](Hardware& h) -> double& { return h.across.latency; }, "the same between nodes"},
    Number{"across.bandwidth", [](Hardware& h) -> double& { return h.across.bandwidth; }, ""},
    Number{"overlap", [](Hardware& h) -> double& { return h.overlap; },
           "share of a collective's time that computation beside it does not feel, 0 to 1"},
    Number{"copies.latency", [](Hardware& h) -> double& { return h.copies.latency; },
           "seconds a batch that copy engines move within a node"},
    Number{"copies.bandwidth", [](Hardware& h) -> double& { return h.copies.bandwidth; },
           "byte/s that they send for a rank; 0: there are none"},
    Number{"copies.overlap", [](Hardware& h) -> double& { return h.copies.overlap; }, "as overlap, of their time"},
};

constexpr std::string_view hopper =
    "peak: {bf16: 989.4e12, fp32: 66.9e12, fp64: 66.9e12}, gemm: {fp8: 1300e12, bf16: 727e12, fp32: 380e12, fp64: "
    "55e12, side: 65, depth: 22}, attention_forward: {bf16: 594e12, fp32: 20e12, fp64: 10e12, half: 820, full_head: "
    "128}, attention_backward: {bf16: 569e12, fp32: 20e12, fp64: 10e12, half: 1630, full_head: 128}, launch: 2e-6, "
    "efficiency: {default: 0.8, rms_norm_forward: 0.62, rms_norm_backward: 0.57, layer_norm_forward: 0.63, "
    "layer_norm_backward: 0.59, quantize: 0.74, swiglu_forward: 0.82, swiglu_backward: 0.9, gelu_forward: 0.53, "
    "gelu_backward: 0.62, cross_entropy_stats: 0.48, cross_entropy_with_gradient: 0.75}, inside: {latency: 6e-6, "
    "bandwidth: 363e9}, across: {latency: 12e-6, bandwidth: 48e9}, overlap: 0.45, copies: {latency: 5e-6, bandwidth: "
    "350e9, overlap: 0.6}";

struct BuiltIn {
  std::string_view name, source;
  std::string_view own;     ///< keys of its own, as YAML flow without braces
  std::string_view common;  ///< and those that it shares with others
};

constexpr std::array built_in{
    BuiltIn{"h200",
            "kernels measured on one H200 (perf/records), data sheet peak; all-reduce of eight H200 without NVLS 363 "
            "GB/s (ml-engineering, network); 400 Gb/s a GPU between nodes; overlap and copies measured on two",
            "memory: 150.7e9, reserved: 2.2e9, bandwidth: 4.8e12, ", hopper},
    BuiltIn{"h100-80g", "the constants of h200 with the H100's memory and bandwidth; not measured",
            "memory: 85.5e9, reserved: 2.2e9, bandwidth: 3.35e12, ", hopper},
    BuiltIn{
        "a100-80g",
        "data sheet, with 0.8 of it for matrix products and the shape of h200's constants; not measured; 200 Gb/s a "
        "GPU between nodes",
        "memory: 85.8e9, reserved: 2.2e9, bandwidth: 2.04e12, ",
        "peak: {bf16: 312e12, fp32: 19.5e12, fp64: 19.5e12}, gemm: {bf16: 250e12, fp32: 120e12, fp64: 16e12, side: "
        "45, depth: 22}, attention_forward: {bf16: 200e12, fp32: 8e12, fp64: 4e12, half: 500, full_head: 128}, "
        "attention_backward: {bf16: 180e12, fp32: 8e12, fp64: 4e12, half: 900, full_head: 128}, launch: 2.5e-6, "
        "efficiency: {default: 0.8, rms_norm_forward: 0.7, rms_norm_backward: 0.6, cross_entropy_stats: 0.55, "
        "cross_entropy_with_gradient: 0.46}, inside: {latency: 7e-6, bandwidth: 230e9}, across: {latency: 14e-6, "
        "bandwidth: 23e9}, overlap: 0.45, copies: {latency: 5e-6, bandwidth: 220e9, overlap: 0.6}"},
    BuiltIn{"b200", "data sheet, with 0.72 of it for matrix products and the shape of h200's constants; not measured",
            "memory: 192e9, reserved: 2.5e9, bandwidth: 8e12, ",
            "peak: {bf16: 2250e12, fp32: 75e12, fp64: 37e12}, gemm: {fp8: 2900e12, bf16: 1620e12, fp32: 700e12, "
            "fp64: 30e12, side: 100, depth: 40}, attention_forward: {bf16: 1200e12, fp32: 25e12, fp64: 10e12, half: "
            "1500, full_head: 128}, attention_backward: {bf16: 950e12, fp32: 25e12, fp64: 10e12, half: 2500, "
            "full_head: 128}, launch: 2e-6, efficiency: {default: 0.75}, inside: {latency: 6e-6, bandwidth: 700e9}, "
            "across: {latency: 12e-6, bandwidth: 48e9}, overlap: 0.45, copies: {latency: 5e-6, bandwidth: 680e9, "
            "overlap: 0.6}"},
    BuiltIn{"cpu",
            "one core of an AMD EPYC 7003 (perf/records), MPI over shared memory; llmtrain calibrate measures yours",
            "gpu: false, ranks_a_node: 64, memory: 0, reserved: 0, bandwidth: 12e9, ",
            "peak: {bf16: 78e9, fp32: 78e9, fp64: 39e9}, gemm: {fp8: 58e9, bf16: 58e9, fp32: 58e9, fp64: 20e9, side: "
            "2, depth: 4}, attention_forward: {bf16: 14e9, fp32: 14e9, fp64: 5e9, half: 0, full_head: 0}, "
            "attention_backward: {bf16: 17e9, fp32: 17e9, fp64: 5e9, half: 0, full_head: 0}, launch: 2e-6, "
            "efficiency: {default: 0.6}, inside: {latency: 20e-6, bandwidth: 2e9}, across: {latency: 50e-6, "
            "bandwidth: 1e9}, overlap: 0"},
};

const Number* find_number(std::string_view path) {
  const auto found = std::find_if(numbers.begin(), numbers.end(), [&](const Number& n) { return n.path == path; });
  return found == numbers.end() ? nullptr : &*found;
}

bool is_group_of_numbers(std::string_view path) {
  return std::any_of(numbers.begin(), numbers.end(),
                     [&](const Number& n) { return n.path.starts_with(std::string(path) + "."); });
}

/// Names the built-in values that a file starts from.
constexpr std::string_view base_key = "base";

class HardwareReader {
 public:
  explicit HardwareReader(Findings& findings) : findings_(findings) {}
  Hardware hardware;

  /// The built-in values that the file starts from, if it names some.
  void read_base(const Node& map) {
    for (std::size_t i = 0; i < map.items.size(); ++i) {
      if (map.keys[i].text != base_key) continue;
      const std::string& name = map.items[i].text;
      const std::vector<std::string> names = hardware_names();
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        hardware = find_hardware(name);
      } else {
        findings_.add(fmt::format("{}: base: no hardware is called '{}'; there are {}", map.items[i].place.text(), name,
                                  fmt::join(names, ", ")));
      }
    }
  }

  void read(const Node& map, const std::string& prefix) {
    for (std::size_t i = 0; i < map.items.size(); ++i) {
      const std::string path = prefix.empty() ? map.keys[i].text : prefix + "." + map.keys[i].text;
      const Node& value = map.items[i];
      if (const Number* number = find_number(path)) {
        read_number(value, path, number->at(hardware));
      } else if (path == "efficiency" && value.kind == Node::Kind::map) {
        for (std::size_t j = 0; j < value.items.size(); ++j) {
          const std::string& operation = value.keys[j].text;
          read_number(value.items[j], path + "." + operation, hardware.efficiency[operation]);
        }
      } else if (is_group_of_numbers(path) && value.kind == Node::Kind::map) {
        read(value, path);
      } else {
        read_word(map.keys[i], value, path);
      }
    }
  }

 private:
  void read_number(const Node& value, const std::string& path, double& into) {
    const Parsed<double> number = parse_real(value.is_text() ? value.text : "");
    if (number && number.value >= 0) {
      into = number.value;
      return;
    }
    findings_.add(fmt::format("{}: {}: '{}' is no number of 0 or more", value.place.text(), path, value.text));
  }

  void read_word(const Node& key, const Node& value, const std::string& path) {
    if (path == base_key) return;  // read before
    if (path == "name" || path == "source") {
      (path == "name" ? hardware.name : hardware.source) = value.text;
    } else if (path == "gpu" && (value.text == "true" || value.text == "false")) {
      hardware.gpu = value.text == "true";
    } else if (const Parsed<std::int64_t> n = parse_integer(value.text); path == "ranks_a_node" && n && n.value > 0) {
      hardware.ranks_a_node = static_cast<int>(std::min<std::int64_t>(n.value, 1 << 20));
    } else if (path == "gpu" || path == "ranks_a_node" || path == "efficiency" || is_group_of_numbers(path)) {
      findings_.add(
          fmt::format("{}: {}: {} '{}' does not fit", value.place.text(), path, value.kind_name(), value.text));
    } else {
      std::vector<std::string> known{"name", "source", "base", "gpu", "ranks_a_node", "efficiency"};
      for (const Number& number : numbers) known.emplace_back(number.path);
      findings_.add(fmt::format("{}: unknown key '{}'{}", key.place.text(), path, did_you_mean(nearest(path, known))));
    }
  }

  Findings& findings_;
};

Hardware parse_hardware(std::string_view text, const std::string& source) {
  Findings findings;
  const Node tree = parse_tree(text, source, false, findings);
  HardwareReader reader(findings);
  if (tree.kind == Node::Kind::map) {
    reader.read_base(tree);
    reader.read(tree, "");
  }
  Hardware& h = reader.hardware;
  const std::pair<std::string_view, double> needed[] = {
      {"gemm.bf16 or fp32", std::max(h.gemm.rate.bf16, h.gemm.rate.fp32)},
      {"bandwidth", h.bandwidth},
      {"inside.bandwidth", h.inside.bandwidth},
      {"across.bandwidth", h.across.bandwidth}};
  for (const auto& [name, value] : needed) {
    if (findings.empty() && value <= 0) findings.add(fmt::format("{}: {} is missing", source, name));
  }
  findings.throw_if_any();
  return h;
}

}  // namespace

double Hardware::efficiency_of(std::string_view operation) const {
  const auto own = efficiency.find(operation);
  const auto found = own != efficiency.end() ? own : efficiency.find("default");
  return found != efficiency.end() && found->second > 0 ? found->second : 1;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const BuiltIn& row : built_in) names.emplace_back(row.name);
  return names;
}

Hardware find_hardware(std::string_view name) {
  for (const BuiltIn& row : built_in) {
    if (row.name != name) continue;
    Hardware hardware = parse_hardware(fmt::format("{{{}{}}}", row.own, row.common), std::string(name));
    hardware.name = row.name;
    hardware.source = row.source;
    return hardware;
  }
  const std::vector<std::string> names = hardware_names();
  fail(ExitCode::usage, "no hardware is called '{}'{}; known are {}, and --hardware FILE", name,
       did_you_mean(nearest(name, names)), fmt::join(names, ", "));
}

Hardware read_hardware(const std::string& path) { return parse_hardware(load_deck_text(path), path); }

std::vector<std::pair<std::string, double>> constants_of(const Hardware& hardware) {
  Hardware h = hardware;
  std::vector<std::pair<std::string, double>> all;
  for (const Number& number : numbers) all.emplace_back(number.path, number.at(h));
  for (const auto& [operation, share] : h.efficiency) all.emplace_back("efficiency." + operation, share);
  return all;
}

std::string to_yaml(const Hardware& hardware) {
  Hardware h = hardware;
  std::string text =
      fmt::format("name: {}\nsource: \"{}\"\ngpu: {}\nranks_a_node: {}\n", h.name, h.source, h.gpu, h.ranks_a_node);
  std::string group;
  for (const Number& number : numbers) {
    const std::size_t dot = number.path.find('.');
    const std::string_view head = dot == std::string_view::npos ? "" : number.path.substr(0, dot);
    if (head != group && !head.empty()) text += fmt::format("{}:\n", head);
    group = head;
    const std::string_view name = head.empty() ? number.path : number.path.substr(dot + 1);
    const std::string line = fmt::format("{}{}: {}", head.empty() ? "" : "  ", name, format_real(number.at(h)));
    text += number.meaning.empty() ? line + "\n" : fmt::format("{:<28}  # {}\n", line, number.meaning);
  }
  text += "efficiency:                   # share of the bandwidth that an operation reaches\n";
  for (const auto& [operation, share] : h.efficiency) text += fmt::format("  {}: {}\n", operation, format_real(share));
  return text;
}

}  // namespace llmtrain
