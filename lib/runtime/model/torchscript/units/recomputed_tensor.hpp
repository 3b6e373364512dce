// Results of an autograd node that it can compute again from what it keeps for its own backward. A reader that needs
// such a result in its backward keeps a RecomputedTensor in its place, so that the result takes no memory between
// forward and backward. Threads: value() on autograd's, everything else on the thread of the forward.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace torch::autograd {
struct Node;
}

namespace dslaunch::runtime::model::units {

class Recomputations;

// `result` is one of its grad_fn()'s. `compute` returns it again, as it lay in memory; with history where gradients are
// enabled. It is called before the node's own backward, and is destroyed with the node.
void offer_recomputation(const at::Tensor& result, std::function<at::Tensor()> compute);

// For AutogradContext::saved_data, as a capsule.
class RecomputedTensor : public torch::CustomClassHolder {
 public:
  // For a reader whose node has an edge to that of `tensor`. Null: it is not on offer, as a whole or in another shape.
  // Each one that is made is expected to read once in a backward: readers that follow one another share the memory of
  // what was computed for the first.
  static c10::intrusive_ptr<RecomputedTensor> of(const at::Tensor& tensor);

  at::Tensor value() const;

 private:
  RecomputedTensor(const std::shared_ptr<torch::autograd::Node>& node, Recomputations& recomputations, uint32_t result)
      : node_(node), recomputations_(recomputations), result_(result) {}
  friend class c10::intrusive_ptr<RecomputedTensor>;

  // Of the reader's edges; another owner would keep autograd from destroying long graphs without recursion.
  const std::weak_ptr<torch::autograd::Node> node_;
  Recomputations& recomputations_;  // of the node
  const uint32_t result_;
  std::optional<std::vector<int64_t>> shape_;  // of a view of the whole result
};

}  // namespace dslaunch::runtime::model::units
