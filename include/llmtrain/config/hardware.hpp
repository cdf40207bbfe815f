// SPDX-License-Identifier: Apache-2.0
/// What a processor and its network can do, in the constants of the planner's time model: a built-in table of GPUs, and
/// files of the same form (`--hardware FILE`, written by `llmtrain calibrate`).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmtrain/base/dtype.hpp"

namespace llmtrain {

/// By precision of the operands; fp8 of matrix products alone.
struct Rates {
  double fp8 = 0, bf16 = 0, fp32 = 0, fp64 = 0;

  double& of(DType dtype) {
    return is_fp8(dtype) ? fp8 : dtype == DType::bf16 ? bf16 : dtype == DType::fp64 ? fp64 : fp32;
  }
  double of(DType dtype) const { return Rates(*this).of(dtype); }
};

/// A matrix product of m x n x k takes 2 m n k / (rate / (1 + side / m + side / n + depth / k)).
struct GemmModel {
  Rates rate;        ///< FLOP/s of a large product
  double side = 0;   ///< at m = n = 2 x side, half the rate
  double depth = 0;  ///< at k = depth, half the rate
};

/// Attention of one direction over sequences of s tokens: rate x min(1, sqrt(head_dim / full_head)) / (1 + half / s +
/// head / head_dim), FLOPs of the causal half.
struct AttentionModel {
  Rates rate;
  double half = 0;       ///< tokens
  double head = 0;       ///< head_dim at which what is done once a score (softmax) takes as long as the products
  double full_head = 0;  ///< head_dim from which the rate is reached; 0: any
};

/// Bytes / bandwidth + latency, of what a rank sends in a ring.
struct Link {
  double latency = 0;    ///< seconds, for each doubling of the group
  double bandwidth = 0;  ///< byte/s of one rank, one way
};

/// What copy engines move between the devices of a node beside what these compute.
struct Copies {
  double latency = 0;    ///< seconds of a batch
  double bandwidth = 0;  ///< byte/s of one rank, one way; 0: there are none
  double overlap = 0;    ///< as Hardware::overlap
};

struct Hardware {
  std::string name;
  std::string source;    ///< where the constants come from
  bool gpu = true;       ///< which back end's rules apply
  double memory = 0;     ///< bytes of one device, or of a host for a CPU's node; 0: unknown, everything fits
  double reserved = 0;   ///< bytes of it that the libraries take for themselves
  int ranks_a_node = 8;  ///< devices of a node
  Rates peak;            ///< FLOP/s, dense, for MFU
  GemmModel gemm;
  AttentionModel attention_forward, attention_backward;
  double bandwidth = 0;  ///< byte/s of the device's memory
  double launch = 0;     ///< seconds that every operation takes besides
  /// Share of the bandwidth that an operation reaches, by name; `default` for the rest.
  std::map<std::string, double, std::less<>> efficiency;
  Link inside, across;  ///< within a node, between nodes
  double overlap = 0;   ///< share of a collective's time that computation beside it does not feel
  Copies copies;        ///< of shifts, large all-gathers and transfers between stages within a node

  double efficiency_of(std::string_view operation) const;
};

/// Names of the built-in table.
std::vector<std::string> hardware_names();

/// A row of the built-in table. Throws Error(usage) naming the nearest if there is none.
Hardware find_hardware(std::string_view name);

/// Reads a file; with `base: NAME` it says what is other than in that row of the table. Throws Error(missing_input), and Error(configuration) with every mistake in it.
Hardware read_hardware(const std::string& path);

/// Every number by its path in such a file, efficiencies included.
std::vector<std::pair<std::string, double>> constants_of(const Hardware& hardware);

/// The file that reads back to the same values, every key with its meaning.
std::string to_yaml(const Hardware& hardware);

}  // namespace llmtrain
