// Attention that is written out: matmul(weights(matmul(query, keysᵀ)), values), where `weights` are operators on each
// score alone and a softmax over keys. It becomes one node, which can see kept keys:
//
//     dslaunch::attend_scored(query, key, value, others...)    with the attribute Subgraph: (scores, others...) ->
//     weights
#pragma once
#include <torch/csrc/jit/ir/ir.h>

namespace dslaunch::runtime::model::decoding {

inline constexpr char kAttendScored[] = "dslaunch::attend_scored";
inline constexpr size_t kFirstOther = 3;  // of its inputs

// Attributes of such a node: its number among those of the graph, and which of its inputs are rows and columns of
// positions (decode_graph.cpp).
c10::Symbol layer_attribute();
c10::Symbol tables_attribute();

// Replaces those whose queries, keys and values come from the elements of `ids`. Returns their number.
int gather_eager_attention(torch::jit::Graph& graph, const torch::jit::Value* ids);

}  // namespace dslaunch::runtime::model::decoding
