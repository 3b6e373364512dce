// The graph of a module's forward with all calls inlined, and the modules that its values refer to.
#pragma once
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>

namespace dslaunch::runtime::model::analysis {

// The values of a graph that are known modules (or other objects).
using ObjectOfValue = std::unordered_map<const torch::jit::Value*, c10::intrusive_ptr<c10::ivalue::Object>>;

// If `node` reads an attribute of a known object and that attribute is an object, records its output as known.
void bind_attribute(const torch::jit::Node* node, ObjectOfValue& objects);

// Returns a copy; inlining caches the graphs of called functions, so pass a separately loaded copy of the model that
// never runs. Calls that cannot be inlined (through an interface) stay.
std::shared_ptr<torch::jit::Graph> inlined_forward(const torch::jit::Module& module);

}  // namespace dslaunch::runtime::model::analysis
