// What running a module's forward changes besides making its results: its arguments, its own state (buffers, counters),
// its parameters. Read off the graphs before they run, on the careful side: where a value may alias an argument it
// does.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <set>
#include <utility>

#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {

struct ForwardEffects {
  bool understood = true;           // false: it calls what the scan cannot follow (an interface, another thread)
  bool changes_tensors = false;     // it may work in place on a tensor that it was given
  bool changes_containers = false;  // or append to a list or dict that it was given
  bool calls_autograd = false;      // it asks for gradients itself
  // Attributes that it writes, as (object, slot): assigned, changed in place, or running statistics of a norm.
  std::set<SlotKey> written;
};

// Inlines the calls below `module`'s forward, which caches graphs: give it a reading of the model that never runs.
ForwardEffects scan_forward_effects(const torch::jit::Module& module);

}  // namespace dslaunch::runtime
