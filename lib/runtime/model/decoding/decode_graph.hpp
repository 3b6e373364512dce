// From a forward that predicts tokens to one that reads each token once: attention sees kept keys and values, and what
// depends on sizes only (positions, tables of angles, masks, biases) is computed for all positions and selected. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/decoding/token_forward.hpp"

namespace dslaunch::runtime::model::decoding {

enum class TableUse : uint8_t {
  kRows,  // operators on tokens: a row for each
  kMask,  // attention: a row for each token, a column for each key
};

// A value that depends on sizes, and that the decoder's operators on tokens read.
struct Table {
  TableUse use = TableUse::kRows;
  std::string reader;  // for messages: "aten::add"
  std::string name;    // of the value in the graph
};

struct DecodeGraph {
  // (self, ids [1, tokens], tables..., rows) -> logits [1, rows, classes] behind the tokens of these numbers; with the
  // operators of cached_attention.hpp.
  std::shared_ptr<torch::jit::Graph> tokens;
  // (self, ids) or (self, the encoder's ids, ids) -> (tables...), for as many positions as ids has.
  std::shared_ptr<torch::jit::Graph> tables;
  // (self, the encoder's ids) -> (encoded values...): what attend_encoded reads; null: there is no encoder.
  std::shared_ptr<torch::jit::Graph> encoder;
  std::vector<Table> table_uses;  // by table
};

// `counted`: names of values that count the tokens of a pass (the rows of experts) and not the positions of a text:
// they do not become tables. Error: what stands against it, as a clause that names the operator.
Result<DecodeGraph> plan_decoding(const TokenForward& forward, const std::set<std::string>& counted);

}  // namespace dslaunch::runtime::model::decoding
