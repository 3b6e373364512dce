// A node as the rules of operators see it: how its operands are placed, their shapes, the numbers among its inputs; and
// what a rule says. Pure; the thread that loads the model.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "runtime/model/placement/known_values.hpp"
#include "runtime/model/placement/placement.hpp"

namespace dslaunch::runtime::model::placement {

using Sizes = std::vector<int64_t>;

// Of a tensor one placement, of a list of tensors one for each, of other values none.
using Placements = std::vector<Placement>;
bool is_whole(const Placements& held);

// A parameter, its dims in another order: dim i of the value is dim dims[i] of the parameter.
struct ParameterView {
  int parameter = 0;
  std::vector<int64_t> dims;
};

using ParameterViews = std::unordered_map<const torch::jit::Value*, ParameterView>;

// What the walk knows so far. Values that are not in `placements` are whole.
struct WalkState {
  const KnownValues& known;
  const ParameterViews& parameters;
  int ranks = 1;
  std::unordered_map<const torch::jit::Value*, Placements> placements = {};
};

// A number of an operator that is of the local tensor: input `input`, or element `position` of that list.
struct NumberEdit {
  size_t input = 0;
  std::optional<size_t> position = {};
  std::vector<int64_t> by_rank;  // empty: of positions, so it follows from the number itself
  int64_t per_whole = 0;         // not 0: instead of each so many that the number has
};

// What is put in the operator's place.
enum class Rewrite : uint8_t {
  kNone,
  kLateBias,          // the GEMM without its bias, which is added to the sum over the ranks
  kWholeSizes,        // a constant, or the list with a constant at `sharded_dim`
  kUnequalPieces,     // split_with_sizes by `pieces`
  kEmbeddingOfSlice,  // dslaunch::embedding_of_slice
  kScaled,            // the result times `scale_by_rank`
  kLossOfSlice,       // dslaunch::cross_entropy_of_slice
  kHeadOfSlice,       // the GEMM of a chunked head, whole, before dslaunch::cross_entropy_of_slice
};

struct Outcome {
  std::vector<Placements> reads;    // by input
  std::vector<Placements> results;  // by output
  std::vector<NumberEdit> edits = {};
  Rewrite rewrite = Rewrite::kNone;
  int64_t whole_size = 0;                         // kWholeSizes; of a group
  int64_t groups = 1;                             // kWholeSizes
  int64_t sharded_dim = 0;                        // kWholeSizes, kUnequalPieces
  std::vector<std::vector<int64_t>> pieces = {};  // kUnequalPieces: by rank
  std::vector<double> scale_by_rank = {};         // kScaled
  Segments segments = {};                         // of the table's rows, of the classes of the loss, of the size
  bool draws = false;                             // random numbers for a sharded value
  std::optional<size_t> passes_length = {};       // to a unit that takes positions: the number of their length
};

// A rule throws one of these instead of returning. The parameters are changed so and the walk starts again.
struct Coarsen {  // to this number of items
  Origins of;
  int64_t items = 0;
};
struct Divide {  // each segment in pieces of this proportion
  Origins of;
  std::vector<int64_t> pieces;
};
struct Shard {
  int parameter = 0;
  Placement placement;
};
struct Refuse {  // these parameters stay whole
  Origins of;
  std::string reason;
  Origins or_of = {};                                 // or these, if they are smaller and any
  std::vector<const torch::jit::Value*> values = {};  // or these are gathered: set by the walk
};

class Operation {
 public:
  Operation(const torch::jit::Node& node, const WalkState& state) : node_(node), state_(state) {}

  const torch::jit::Node& node() const { return node_; }
  std::string_view kind() const { return node_.kind().toQualString(); }
  int ranks() const { return state_.ranks; }
  size_t num_inputs() const { return node_.inputs().size(); }

  bool is_tensor(size_t input) const;
  const Placement& placement(size_t input) const;  // of a tensor; whole for another input
  const Placements& placements(size_t input) const;
  Sizes sizes(size_t input) const;
  std::vector<Sizes> list_sizes(size_t input) const;
  Sizes result_sizes(size_t output = 0) const;
  std::vector<Sizes> result_list_sizes() const;
  const c10::IValue* known(size_t input) const;
  // Numbers that are not known, or None: `otherwise`.
  int64_t number(size_t input, int64_t otherwise = 0) const;
  std::vector<int64_t> numbers(size_t input) const;
  // The input that the schema calls so.
  std::optional<size_t> argument(std::string_view name) const;
  const ParameterView* parameter(size_t input) const;

  bool is_none(size_t input) const {
    return input >= num_inputs() || (known(input) != nullptr && known(input)->isNone());
  }
  bool is_true(size_t input) const {
    return known(input) != nullptr && known(input)->isBool() && known(input)->toBool();
  }

  bool any_sharded() const;
  bool any_partial() const;
  bool any_grouped() const;
  Origins origins() const;  // of all operands

  // All operands and results whole. Refuses sharded ones: `why` as a clause.
  Outcome whole(const std::string& why) const;
  // As the operands are; results whole.
  Outcome as_it_is() const;
  [[noreturn]] void refuse(const std::string& why) const { throw Refuse{origins(), why}; }

  // Two dims that must lie alike: with the origins of both.
  Segments meet(const Segments& one, const Segments& other) const;
  // The segments with items of which `unit` elements stay together.
  Segments in_units(const Segments& segments, int64_t unit) const;
  // Segments begin and end at these positions of the dim.
  void cut_at(const Segments& segments, const std::vector<int64_t>& positions) const;
  // `groups`: of Placement.
  NumberEdit local_number(size_t input, std::optional<size_t> position, const Segments& segments,
                          int64_t groups = 1) const;
  // The operand is a parameter, which is then split so: the walk starts again.
  void shard_parameter(size_t input, int64_t dim, const Segments& segments) const;

 private:
  bool any(bool (*holds)(const Placement&)) const;  // of all operands

  const torch::jit::Node& node_;
  const WalkState& state_;
};

// The segments that cover [begin, end); both are boundaries.
Segments segments_within(const Segments& segments, int64_t begin, int64_t end);

int64_t wrapped(int64_t dim, size_t dims);

}  // namespace dslaunch::runtime::model::placement
