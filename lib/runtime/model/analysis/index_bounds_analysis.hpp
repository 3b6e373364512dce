// Static analysis of the model's graph: which inputs are indices, of which tables, how long they may be where positions
// have a table, and how many classes the outputs distinguish. Pure.
#pragma once
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

}  // namespace dslaunch::runtime::model::analysis
