// Which arguments of a graph decide the elements of its values. A value that is made from sizes, constants and the
// module's own tensors depends on none. Pure.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <unordered_map>

namespace dslaunch::runtime::model::decoding {

class ContentFlow {
 public:
  using Arguments = std::set<const torch::jit::Value*>;

  // Follows what nodes write in place into values and into the values that they are views of. `block`: of a graph whose
  // calls are inlined.
  explicit ContentFlow(const torch::jit::Block* block);

  // The arguments whose elements decide those of the value, after all nodes have run.
  const Arguments& of(const torch::jit::Value* value) const;
  // The same for shapes: the arguments on whose sizes those of the value, or its elements, depend.
  const Arguments& sizes_of(const torch::jit::Value* value) const;

 private:
  struct Flow {
    Arguments elements, sizes;
  };

  void visit(const torch::jit::Block* block);
  void visit(const torch::jit::Node* node);
  void write_through(const torch::jit::Value* view, const Flow& flow);

  std::unordered_map<const torch::jit::Value*, Flow> flows_;
};

}  // namespace dslaunch::runtime::model::decoding
