#include "runtime/engine/setup/sequence_dims.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw UserError(ExitCode::kBadInput, "sequences cannot be cut: " + what);
}

std::string described(const ArrayInfo& array) {
  return fmt::format("array '{}' is {}[{}]", array.name, c10::toString(array.dtype),
                     fmt::join(array.sample_shape, ", "));
}

// Token ids: integers with which forward looks up rows of a table, one row of them a sample.
const ArrayInfo* find_tokens(const model::ModelFacts& model, const std::vector<ArrayInfo>& arrays,
                             const std::vector<size_t>& arguments) {
  const auto has_one_dim = [&](size_t argument) { return arrays[arguments[argument]].sample_shape.size() == 1; };
  const auto& names = model.inputs.names;
  for (size_t i = 0; i < std::min(names.size(), arguments.size()); ++i) {
    if (names[i] == "input_ids" && has_one_dim(i)) return &arrays[arguments[i]];
  }
  for (const auto& index : model.index_arguments) {
    const bool is_token = !index.is_label && index.input < arguments.size() && has_one_dim(index.input);
    if (is_token) return &arrays[arguments[index.input]];
  }
  return nullptr;
}

// An array with positions of a sequence as its values, not as a dim, would point behind what is left.
bool holds_positions(const ArrayInfo& array) {
  return c10::isIntegralType(array.dtype, /*includeBool=*/false) && array.name.ends_with("_positions");
}

std::vector<int64_t> dims_of_length(const ArrayInfo& array, int64_t length) {
  std::vector<int64_t> dims;
  for (size_t dim = 0; dim < array.sample_shape.size(); ++dim) {
    if (array.sample_shape[dim] == length) dims.push_back(static_cast<int64_t>(dim));
  }
  const bool is_mask = !c10::isFloatingType(array.dtype) && dims.size() == 2;  // each position by each other
  if (dims.size() > 1 && !is_mask) {
    refuse(
        fmt::format("{}, and {} of its dims have the length {} of a sequence, so it is not known which of them are "
                    "positions",
                    described(array), dims.size(), length));
  }
  if (dims.empty() && holds_positions(array)) {
    refuse(fmt::format("{}, positions in the sequence, which may lie behind the cut", described(array)));
  }
  return dims;
}

}  // namespace

SequenceDims find_sequence_dims(const model::ModelFacts& model, const std::vector<ArrayInfo>& arrays,
                                const std::vector<size_t>& arguments, const ArraySelection& selection) {
  const ArrayInfo* tokens = find_tokens(model, arrays, arguments);
  if (tokens == nullptr) {
    refuse(
        "it is not known which array has the positions of a sequence: no argument of forward takes one row of token "
        "ids a sample (curriculum_learning and dynamic_batching need such an array)");
  }
  SequenceDims out{.length = tokens->sample_shape.front(), .of_arrays = {}};
  std::set<size_t> chosen(selection.inputs.begin(), selection.inputs.end());
  chosen.insert(selection.labels.begin(), selection.labels.end());
  for (const size_t array : chosen) {
    auto dims = dims_of_length(arrays[array], out.length);
    if (!dims.empty()) out.of_arrays[arrays[array].name] = std::move(dims);
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::setup
