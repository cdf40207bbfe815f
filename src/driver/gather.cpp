// SPDX-License-Identifier: Apache-2.0
/// Owners add the bits of their elements to zeros, so one integer sum over the world gives every element exactly; then
/// all who hold an element compare.
#include "llmtrain/driver/gather.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "llmtrain/base/agree.hpp"
#include "llmtrain/base/bf16.hpp"

namespace llmtrain {

namespace {

/// What this rank holds of a storage: elements of its flat local array from `begin` on; nothing by default.
struct Holding {
  const StorageLayout* layout = nullptr;
  std::int64_t begin = 0;
  std::vector<double> values;
  std::int64_t chunk_begin = 0;
  std::vector<SectionRange> counted;  ///< of the chunk that starts there
};

std::vector<double> to_host(Parts& parts, Tensor tensor) {
  const auto read = [&]<class T>(T) {
    std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
    parts.device.download(parts.stream, values.data(), tensor);
    parts.stream.synchronize();
    return std::vector<double>(values.begin(), values.end());
  };
  if (tensor.dtype == DType::bf16) return read(Bf16{});
  return tensor.dtype == DType::fp64 ? read(double{}) : read(float{});
}

/// Some storages of the model with all their sections whole; the same ones on every rank.
class WholeStorages {
 public:
  void add(const StorageSpec& storage, Holding holding) {
    Entry entry{&storage, std::move(holding), {}};
    for (const Section& section : storage.sections) {
      entry.first.push_back(std::ssize(bits_));
      bits_.resize(bits_.size() + static_cast<std::size_t>(section.numel()), 0);
    }
    owners_.resize(bits_.size(), 0);
    for_each(entry, entry.holding.counted, entry.holding.chunk_begin, [&](std::size_t element, double value) {
      bits_[element] = std::bit_cast<std::int64_t>(value);
      owners_[element] = 1;
    });
    entries_.push_back(std::move(entry));
  }

  std::int64_t elements() const { return std::ssize(bits_); }

  /// Sums, compares, calls, and starts afresh.
  void flush(const MpiComm& world, double scale, const VisitSection& visit) {
    if (world) {
      world.all_reduce(std::span(bits_), MpiOp::sum);
      world.all_reduce(std::span(owners_), MpiOp::sum);
      agree(world, [&] { check(); });
    } else {
      check();
    }
    for (const Entry& entry : entries_) call(entry, scale, visit);
    *this = WholeStorages();
  }

 private:
  struct Entry {
    const StorageSpec* storage;
    Holding holding;
    std::vector<std::int64_t> first;  // element of each section
  };

  /// Throws Error(comparison_failed) if this rank holds other values, or elements have no owner or several.
  void check() const {
    for (const Entry& entry : entries_) {
      std::int64_t once = 0, all = 0;
      for (std::size_t i = 0; i < entry.first.size(); ++i) {
        const auto begin = owners_.begin() + entry.first[i];
        all += entry.storage->sections[i].numel();
        once += std::count(begin, begin + entry.storage->sections[i].numel(), 1);
      }
      require(once == all, ExitCode::comparison_failed, "{}: {} of {} elements are not owned by exactly one rank",
              entry.storage->name, all - once, all);
      const Holding& held = entry.holding;
      if (held.layout == nullptr) continue;
      std::int64_t different = 0;
      const auto all_held = section_ranges(*held.layout, held.begin, held.begin + std::ssize(held.values));
      for_each(entry, all_held, held.begin, [&](std::size_t element, double value) {
        different += bits_[element] != std::bit_cast<std::int64_t>(value);
      });
      require(different == 0, ExitCode::comparison_failed,
              "{}: {} elements differ between the ranks that hold copies of them", entry.storage->name, different);
    }
  }

  void call(const Entry& entry, double scale, const VisitSection& visit) const {
    for (std::size_t i = 0; i < entry.first.size(); ++i) {
      const Section& section = entry.storage->sections[i];
      const auto begin = bits_.begin() + entry.first[i];
      std::vector<double> values;
      std::transform(begin, begin + section.numel(), std::back_inserter(values),
                     [&](std::int64_t bits) { return scale * std::bit_cast<double>(bits); });
      visit(section, values);
    }
  }

  /// Calls with (element in bits_, value) for `ranges`, whose offsets start at element `begin` of the flat array.
  template <class Call>
  static void for_each(const Entry& entry, const std::vector<SectionRange>& ranges, std::int64_t begin, Call call) {
    const Holding& holding = entry.holding;
    for (const SectionRange& range : ranges) {
      const auto at = static_cast<std::size_t>(range.section);
      const SectionSlice& slice = holding.layout->slices[at];
      const double* value = holding.values.data() + (begin - holding.begin) + range.offset;
      for (std::int64_t flat = range.flat_begin; flat < range.flat_end; ++flat, ++value) {
        const std::int64_t row = slice.first_row + flat / slice.cols, col = slice.first_col + flat % slice.cols;
        const std::int64_t element = entry.first[at] + row * entry.storage->sections[at].cols() + col;
        call(static_cast<std::size_t>(element), *value);
      }
    }
  }

  std::vector<Entry> entries_;
  std::vector<std::int64_t> bits_;    // of each element, as fp64
  std::vector<std::int64_t> owners_;  // of each element
};

/// A storage of this rank by its name in the whole model, or -1.
int local_storage(const Parts& parts, const std::string& name) {
  const auto& all = parts.table.storages;
  const auto found = std::find_if(all.begin(), all.end(), [&](const StorageSpec& s) { return s.name == name; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

/// Puts together the storages of the whole model in its order; `read` gives elements of one of this rank's storages,
/// from the number it returns on.
template <class Read>
void gather(Parts& parts, double scale, const VisitSection& visit, Read read) {
  constexpr std::int64_t enough = std::int64_t{1} << 20;  // elements in memory at once, besides a storage's own
  const ParamTable whole = make_param_table(parts.deck.model, parts.place.topology.size(Axis::tp));
  const StoreShape& shape = parts.shape;
  WholeStorages batch;
  for (const StorageSpec& storage : whole.storages) {
    const int local = local_storage(parts, storage.name);
    Holding holding;
    if (local >= 0) {
      holding.layout = &shape.layout(local);
      holding.begin = read(local, holding.values);
      holding.chunk_begin = holding.layout->chunk * shape.place.chunk.shard;
      holding.counted = counted_ranges(shape.spec(local), *holding.layout, shape.place.chunk);
    }
    batch.add(storage, std::move(holding));
    if (batch.elements() >= enough) batch.flush(parts.place.world, scale, visit);
  }
  batch.flush(parts.place.world, scale, visit);
}

/// Weights of this rank, lease by lease.
class WeightReader {
 public:
  explicit WeightReader(Parts& parts) : parts_(parts) {}
  ~WeightReader() { release(); }
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;

  std::vector<double> read(int storage) {
    const std::vector<LeaseSpec>& leases = parts_.table.leases;
    const auto position = [&](const LeaseSpec& lease) {
      return std::find(lease.storages.begin(), lease.storages.end(), storage) - lease.storages.begin();
    };
    const auto found = std::find_if(leases.begin(), leases.end(), [&](const LeaseSpec& lease) {
      return position(lease) < std::ssize(lease.storages);
    });
    LLMTRAIN_CHECK(found != leases.end());
    if (const auto number = static_cast<int>(found - leases.begin()); number != lease_) {
      release();
      lease_ = number;
      parts_.params.begin_pass({lease_}, parts_.stream);
      weights_ = parts_.params.acquire(lease_, parts_.stream);
    }
    return to_host(parts_, weights_[static_cast<std::size_t>(position(*found))]);
  }

 private:
  void release() {
    if (lease_ >= 0) parts_.params.release(lease_, parts_.stream);
  }

  Parts& parts_;
  int lease_ = -1;
  std::span<const Tensor> weights_;
};

}  // namespace

void visit_weights(Parts& parts, const VisitSection& visit) {
  WeightReader weights(parts);
  gather(parts, 1.0, visit, [&](int storage, std::vector<double>& values) {
    values = weights.read(storage);
    return std::int64_t{0};
  });
}

void visit_gradients(Parts& parts, double scale, const VisitSection& visit) {
  gather(parts, scale, visit, [&](int storage, std::vector<double>& values) {
    values = to_host(parts, parts.grads.updated(storage));
    return parts.shape.updated_begin(storage);
  });
}

}  // namespace llmtrain
