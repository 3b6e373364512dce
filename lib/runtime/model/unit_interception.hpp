// The interception of unit calls: the graph of a unit class's forward is replaced by one operator that receives `self`;
// the original graph is kept aside and run by it. Around the run the unit's parameters are acquired and set into its
// slots. In backward a hook on the nodes that made the call's outputs asks for the parameters again, and a node of our
// own takes their gradients, all at once for each call.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <vector>

#include "runtime/model/graph_scan.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime {

// A unit and where its parameters go: places[i] are all slots that hold its i-th parameter (several when it is tied).
struct BoundUnit {
  int unit = 0;
  std::vector<std::vector<ParameterPlace>> places;
};

class UnitInterception {
 public:
  UnitInterception() = default;
  ~UnitInterception();  // forgets the modules; their classes stay rewritten
  UnitInterception(const UnitInterception&) = delete;
  UnitInterception& operator=(const UnitInterception&) = delete;

  // Before the first run of any graph. Every call of module.forward goes through with_parameters(unit) from now on.
  void intercept(const torch::jit::Module& module, BoundUnit unit);
  void set_unit_parameters(UnitParameters* parameters) { parameters_ = parameters; }
  // Runs `body` with the unit's parameters in their slots and returns what it returned. `arguments`: what the call was
  // given, so that an argument that it changes in place counts as an output.
  c10::IValue call(const BoundUnit& unit, at::ArrayRef<c10::IValue> arguments,
                   const std::function<c10::IValue()>& body) const;

 private:
  UnitParameters* parameters_ = nullptr;
  std::vector<ObjectKey> intercepted_;
};

}  // namespace dslaunch::runtime
