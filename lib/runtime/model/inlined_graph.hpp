// The graph of a module's forward with all calls put in line, and the module that each value of it is.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>

namespace dslaunch::runtime {

// A graph's values that are known modules (or other objects).
using ObjectOfValue = std::unordered_map<const torch::jit::Value*, c10::intrusive_ptr<c10::ivalue::Object>>;

// If `node` reads an attribute of a known object that is itself an object, its output becomes known.
void bind_attribute(const torch::jit::Node* node, ObjectOfValue& objects);

// A copy; inlining caches the graphs of what is called, so give it a reading of the model that never runs. Calls that
// cannot be inlined (through an interface) stay.
std::shared_ptr<torch::jit::Graph> inlined_forward(const torch::jit::Module& module);

}  // namespace dslaunch::runtime
