// A forward that predicts tokens, cut out of one that is trained: from the ids of tokens to their logits. The loss, the
// labels and their shifts fall away. On the thread that loads the model.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/graph/unit_discovery.hpp"

namespace dslaunch::runtime::model::decoding {

struct TokenForward {
  // (self, ids) or, of an encoder and a decoder, (self, the encoder's ids, the decoder's ids) -> logits [batch,
  // positions, classes]. What else forward takes has the values of text without padding: masks of ones, one segment,
  // positions 0, 1, ...
  std::shared_ptr<torch::jit::Graph> graph;
  std::vector<std::string> inputs;  // names of the arguments without self: one or two
};

// Logits are the output of forward of that name, else the operand of its cross entropy, else its only output. The
// decoder's ids enter where an embedding reads what depends on the labels, or an argument `decoder_input_ids`. `kept`:
// units whose calls stay in the graph. Error: why forward has no such part, as a sentence.
Result<TokenForward> cut_to_logits(const torch::jit::Module& module,
                                   const std::vector<graph::UnitCandidate>& kept = {});

// Makes it the module's forward.
void replace_forward(const torch::jit::Module& module, const TokenForward& cut);

}  // namespace dslaunch::runtime::model::decoding
