// Copies gradients into a flat buffer, one unit at a time: one fused kernel launch on a device instead of one per
// parameter. The first gradient of a segment is copied, later ones are added.
#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace dslaunch::runtime {

class GradientCopies {
 public:
  // `destination`: 1-D, of any floating type.
  void add(const at::Tensor& destination, const at::Tensor& gradient, bool is_first) {
    if (gradient.numel() == 0) return;
    (is_first ? copy_to_ : add_to_).push_back(destination);
    (is_first ? copy_from_ : add_from_).push_back(gradient.reshape({-1}));
  }
  void zero(const at::Tensor& destination) {
    if (destination.numel() > 0) zero_.push_back(destination);
  }
  void run() {
    if (!copy_to_.empty()) at::_foreach_copy_(copy_to_, copy_from_);
    if (!add_to_.empty()) at::_foreach_add_(add_to_, add_from_);
    if (!zero_.empty()) at::_foreach_zero_(zero_);
  }

 private:
  std::vector<at::Tensor> copy_to_, copy_from_, add_to_, add_from_, zero_;
};

}  // namespace dslaunch::runtime
