// Which dims of the data's arrays are the positions of a sequence, so that all arrays of a sample can be cut to one
// length. Decided by what the model says of its arguments and by the arrays' shapes. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/array_selection.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/model/interface/model_facts.hpp"

namespace dslaunch::runtime::engine::setup {

struct SequenceDims {
  int64_t length = 0;                                     // of whole samples
  std::map<std::string, std::vector<int64_t>> of_arrays;  // dims of a sample, counted from 0
};

// `arguments`: the arrays of forward's arguments. Throws UserError(65) without an array of token ids, or with an array
// whose dims of positions are not known.
SequenceDims find_sequence_dims(const model::ModelFacts& model, const std::vector<ArrayInfo>& arrays,
                                const std::vector<size_t>& arguments, const ArraySelection& selection);

}  // namespace dslaunch::runtime::engine::setup
