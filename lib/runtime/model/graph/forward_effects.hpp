// The side effects of a module's forward: changes of its arguments, its own state (buffers, counters) and its
// parameters. Conservative: a value that may alias an argument is assumed to alias it.
#pragma once
#include <set>

#include "runtime/model/graph/flat_graph.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime::model::graph {

struct ForwardEffects {
  bool is_analyzable = true;     // false: it calls code that the analysis cannot follow (an interface, another thread)
  bool changes_tensors = false;  // it may work in place on a tensor argument
  bool changes_containers = false;  // or append to a list or dict argument
  bool calls_autograd = false;      // it computes gradients itself
  // Attributes that it writes, as (object, slot): assigned, changed in place, or running statistics of a norm.
  std::set<SlotKey> written;
};

// `flat`: of flatten_resolved().
ForwardEffects scan_forward_effects(const FlatGraph& flat);

}  // namespace dslaunch::runtime::model::graph
