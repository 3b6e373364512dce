// The cross entropy of classes that the ranks of a tensor group share: what each rank computes of its own classes
// becomes that of all classes by one exchange of two numbers a row. The gradient of the logits is local.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>

#include "runtime/model/tensor_parallel/tensor_group.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// A capsule in AutogradContext::saved_data.
class SharedClasses : public torch::CustomClassHolder {
 public:
  SharedClasses(Layout layout, TensorGroupPtr group) : layout_(std::move(layout)), group_(std::move(group)) {}

  // The numbers of classes of the ranks that have the fewest and the most: the same on all ranks.
  int64_t fewest() const;
  int64_t most() const;

  static constexpr int64_t kIgnored = -100;
  struct Labels {
    at::Tensor local;   // position among the rank's classes; 0 where another rank has the class; or kIgnored
    at::Tensor is_own;  // whether the rank has the class
  };
  Labels local_labels(const at::Tensor& labels, int64_t ignore_index) const;

  struct Rows {
    at::Tensor log_sums;  // [rows]: logarithms of the sums of the exponentials of logits
    at::Tensor targets;   // [rows]: logits of the labels
  };
  // Of all classes, with the same bits on all ranks, from those of the rank's classes; a target that another rank has
  // is 0 here.
  Rows of_all_classes(const Rows& own) const;

  const Layout& layout() const { return layout_; }
  const TensorGroupPtr& group() const { return group_; }

 private:
  const Layout layout_;
  const TensorGroupPtr group_;
};

using SharedClassesPtr = c10::intrusive_ptr<SharedClasses>;

// at::cross_entropy_loss (in fp32 with `in_float`) of logits [rows, classes] of which each rank has its classes: whole.
// No class weights; label smoothing is zero. Not twice differentiable.
at::Tensor cross_entropy_of_slice(const at::Tensor& logits, const at::Tensor& labels, int64_t reduction,
                                  int64_t ignore_index, bool in_float, const SharedClassesPtr& classes);

}  // namespace dslaunch::runtime::model::tensor_parallel
