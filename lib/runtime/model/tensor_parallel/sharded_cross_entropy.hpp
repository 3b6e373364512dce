// The cross entropy of classes that the ranks of a tensor group share: what each rank computes of its own classes
// becomes that of all classes by one exchange of two numbers a row, of four with class weights and label smoothing. The
// gradient of the logits is local.
#pragma once
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/tensor_parallel/tensor_group.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// A capsule in AutogradContext::saved_data.
class SharedClasses : public torch::CustomClassHolder {
 public:
  SharedClasses(Layout layout, TensorGroupPtr group) : layout_(std::move(layout)), group_(std::move(group)) {}

  int64_t count() const;
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
    at::Tensor log_sums;                // [rows]: logarithms of the sums of the exponentials of logits
    at::Tensor targets;                 // [rows]: logits of the labels
    std::vector<at::Tensor> sums = {};  // [rows] each: what is added up over the ranks
  };
  // Of all classes, with the same bits on all ranks, from those of the rank's classes; a target that another rank has
  // is 0 here.
  Rows of_all_classes(const Rows& own) const;

  const std::vector<Range>& own_ranges() const;
  const Layout& layout() const { return layout_; }
  const TensorGroupPtr& group() const { return group_; }

 private:
  const Layout layout_;
  const TensorGroupPtr group_;
};

using SharedClassesPtr = c10::intrusive_ptr<SharedClasses>;

// The settings of at::cross_entropy_loss.
struct LossSettings {
  std::optional<at::Tensor> class_weights = {};  // of all classes
  int64_t reduction = at::Reduction::Mean;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  bool in_float = false;  // the loss is in fp32
};

// at::cross_entropy_loss of logits [rows, classes] of which each rank has its classes: whole. Not twice differentiable.
at::Tensor cross_entropy_of_slice(const at::Tensor& logits, const at::Tensor& labels, const LossSettings& settings,
                                  const SharedClassesPtr& classes);

}  // namespace dslaunch::runtime::model::tensor_parallel
