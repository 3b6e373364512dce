// The values of a graph whose memory somebody writes to in place.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace dslaunch::runtime::model::analysis {

// Values that may share memory, as one class each: a value that somebody writes to in place spoils all of its class.
// Calls may write to their arguments, except those of units that write to nothing. Looks at the block as it is when
// this object is made, inner blocks included.
class WrittenValues {
 public:
  explicit WrittenValues(const torch::jit::Block* block);
  bool contains(const torch::jit::Value* value) const { return spoiled_.count(root(value)) > 0; }

 private:
  void visit(const torch::jit::Block* block);
  void visit(const torch::jit::Node* node);
  void join_all(at::ArrayRef<const torch::jit::Value*> outputs, const torch::jit::Value* value);
  void join(const torch::jit::Value* a, const torch::jit::Value* b);
  const torch::jit::Value* root(const torch::jit::Value* value) const;

  std::unordered_map<std::string, const torch::jit::Value*> attributes_;  // by name
  std::unordered_map<const torch::jit::Value*, const torch::jit::Value*> parent_;
  std::vector<const torch::jit::Value*> written_;
  std::unordered_set<const torch::jit::Value*> spoiled_;
};

}  // namespace dslaunch::runtime::model::analysis
