// SPDX-License-Identifier: Apache-2.0
/// The parameter table: storage tensors, the sections they stack, and the leases they travel in. Initialisation, ZeRO,
/// checkpoint, counts and gradient sync derive from it. The rows of a model are in model/param_table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmtrain {

/// Axis of a section's [rows, cols] that tensor parallelism cuts.
enum class SplitAxis { none, rows, cols };

/// What the gradient of a section sums over on one of several tensor ranks that hold the same values.
enum class GradientOver {
  whole,   ///< everything: each holder computes the full gradient
  tokens,  ///< the rank's tokens: partial under sequence parallelism, else the full gradient
  heads,   ///< the rank's heads: partial
};

/// Which copy of a weight that two pipeline stages hold.
enum class TiedCopy {
  none,   ///< no other stage holds it
  first,  ///< the first stage's: the one that counts
  last,   ///< the last stage's
};

/// How a section's values start.
struct Init {
  enum class Kind { normal, constant } kind = Kind::normal;
  double value = 0;  ///< standard deviation, or the constant
};

/// The unit of name, global shape, initialisation, norm counting, checkpoint and export.
struct Section {
  std::string name;                 ///< Hugging Face parameter name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  ///< true global shape: [out, in], or [n] for 1-D parameters
  SplitAxis split = SplitAxis::none;
  Init init;
  /// Pieces along the split axis that are never cut (kv heads for K and V); with more tensor ranks than units each
  /// unit is held by several ranks. 0: every row or column is a unit.
  std::int64_t units = 0;
  /// Rows as stored over all ranks (vocabulary padding); 0: as many as in `shape`. Padding rows are zero.
  std::int64_t padded_rows = 0;
  GradientOver gradient_over = GradientOver::whole;

  std::int64_t rows() const { return shape[0]; }
  std::int64_t cols() const { return shape.size() > 1 ? shape[1] : 1; }
  std::int64_t numel() const { return rows() * cols(); }
};

/// The unit of GEMM, gather, reduce and lease: sections stacked by rows.
struct StorageSpec {
  std::string name;  ///< e.g. "layers.0.qkv"
  std::vector<Section> sections;
  bool decay = true;  ///< weight decay applies (matrices)
  TiedCopy tied = TiedCopy::none;
};

/// Storage tensors that come and go together: one block, the embedding, or the head.
struct LeaseSpec {
  std::string name;
  std::vector<int> storages;  ///< indices into ParamTable::storages; a tied weight stands in two leases
};

struct ParamTable {
  std::vector<StorageSpec> storages;
  std::vector<LeaseSpec> leases;

  std::int64_t parameters() const;  ///< true elements, each tied weight once
  /// The table of a rank that holds these leases alone, in this order.
  ParamTable part(std::span<const int> leases) const;
};

/// Dataset path of a section in checkpoints and dumps: "model.norm.weight" -> "/model/norm/weight".
std::string dataset_path(std::string_view section_name);

/// 64-bit FNV-1a of a section's name: the name's part of the random key.
std::uint64_t name_hash(std::string_view section_name);

}  // namespace llmtrain
