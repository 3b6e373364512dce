// The forwards of unit classes as they were before their interception (script/unit_interception.hpp): interception
// replaces the graph of a class, and the original must still be run and visited. Written while models load, read while
// they run; one thread at a time.
#pragma once
#include <torch/csrc/jit/api/function_impl.h>

#include <memory>

namespace dslaunch::runtime {

// The forward of this class before interception; null: it was never intercepted.
torch::jit::GraphFunction* unit_forward(const c10::ClassType& type);
void keep_unit_forward(const c10::ClassType& type, std::shared_ptr<torch::jit::Graph> graph);

}  // namespace dslaunch::runtime
