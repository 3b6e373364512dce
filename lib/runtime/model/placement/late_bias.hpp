// A GEMM that sums over the ranks gets its bias once, after the sum. On the thread that loads the model.
#pragma once
#include <unordered_set>

#include "runtime/model/placement/propagation.hpp"

namespace dslaunch::runtime::model::placement {

// Edits the graph of a walk: GEMMs with Rewrite::kLateBias become one without a bias and a sum. With `behind_views` the
// bias is added to the view of the result that has a dim of positions, where the GEMM itself has none.
void separate_late_biases(graph::FlatGraph& flat, KnownValues& known,
                          std::unordered_set<const torch::jit::Value*>& written, const Propagated& propagated,
                          bool behind_views);

}  // namespace dslaunch::runtime::model::placement
