// Static analysis of the model's graph: which inputs are indices, of which tables, how long they may be where positions
// have a table, and how many classes the outputs distinguish. Pure.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/model/interface/model_facts.hpp"

namespace dslaunch::runtime::model::analysis {

struct IndexUse {
  std::vector<IndexLimit> limits;
  std::vector<IndexArgument> arguments;  // each input once
  std::vector<LengthLimit> lengths;
  std::map<std::string, int64_t> num_classes;  // see ModelFacts
};
// `flat`: of flatten_resolved().
IndexUse scan_index_use(const graph::FlatGraph& flat);

// torch.jit.script silently drops the renormalisation of an embedding with max_norm: the call in the file still has the
// number, but the called function no longer applies it. Pure.

// The paths (empty: the model itself) of modules that call F.embedding or F.embedding_bag with a max_norm. Needs a
// loaded copy of the model in which no call has been inlined.
std::vector<std::string> find_dropped_max_norm(const torch::jit::Module& model);

}  // namespace dslaunch::runtime::model::analysis
