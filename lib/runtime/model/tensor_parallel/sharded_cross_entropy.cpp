#include "runtime/model/tensor_parallel/sharded_cross_entropy.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace dslaunch::runtime::model::tensor_parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            int64_t reduction, int64_t ignore_index, bool in_float, const SharedClassesPtr& classes) {
    const at::Tensor values = widened(logits);
    const auto [local, is_own] = classes->local_labels(labels, ignore_index);
    const at::Tensor counts = local.ne(SharedClasses::kIgnored), targets = local.masked_fill(counts.logical_not(), 0);
    SharedClasses::Rows own{at::full({values.size(0)}, -kInfinity, values.options()),
                            at::zeros({values.size(0)}, values.options())};
    if (values.size(1) > 0) {
      own.log_sums = values.logsumexp(1);
      own.targets = values.gather(1, targets.unsqueeze(1)).squeeze(1).masked_fill(is_own.logical_not(), 0);
    }
    const auto rows = classes->of_all_classes(own);
    at::Tensor losses = (rows.log_sums - rows.targets).masked_fill(counts.logical_not(), 0);
    at::Tensor factor = at::ones({}, values.options());
    if (reduction == at::Reduction::Mean) factor = counts.sum().to(values.scalar_type()).reciprocal();
    if (reduction != at::Reduction::None) losses = losses.sum() * factor;
    context->save_for_backward({logits, targets, is_own, counts, rows.log_sums, factor});
    return in_float ? losses : losses.to(logits.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    if (at::GradMode::is_enabled()) {
      throw UserError(ExitCode::kBadInput,
                      "cannot compute a gradient of a gradient through a loss whose classes are split among tensor "
                      "ranks: set \"tensor_parallel\": {\"size\": 1}, or keep the model's head whole");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &is_own = saved[2], &counts = saved[3];
    at::Tensor gradient = (widened(logits) - saved[4].unsqueeze(1)).exp_();
    if (gradient.size(1) > 0) {
      gradient.scatter_add_(1, targets.unsqueeze(1), is_own.to(gradient.scalar_type()).neg_().unsqueeze(1));
    }
    const at::Tensor factors = (upstream[0].to(gradient.scalar_type()) * saved[5]).expand({logits.size(0)});
    gradient.mul_(factors.unsqueeze(1)).masked_fill_(counts.logical_not().unsqueeze(1), 0);
    return {gradient.to(logits.scalar_type()), {}, {}, {}, {}, {}};
  }

 private:
  static at::Tensor widened(const at::Tensor& logits) {
    return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  }
};

}  // namespace

int64_t SharedClasses::fewest() const {
  const auto shortest = std::min_element(layout_.begin(), layout_.end(), [](const auto& one, const auto& other) {
    return length_of(one) < length_of(other);
  });
  return length_of(*shortest);
}

int64_t SharedClasses::most() const {
  return longest_of(layout_);
}

SharedClasses::Labels SharedClasses::local_labels(const at::Tensor& labels, int64_t ignore_index) const {
  const at::Tensor is_ignored = labels.eq(ignore_index);
  int64_t classes = 0;
  for (const auto& ranges : layout_) classes += length_of(ranges);
  at::_assert_async(labels.ge(0).logical_and_(labels.lt(classes)).logical_or_(is_ignored).all(),
                    "a label that is not a class");
  auto [local, is_own] = local_indices(labels, layout_.at(static_cast<size_t>(group_->rank())));
  return {local.masked_fill(is_ignored, kIgnored), is_own.logical_and(is_ignored.logical_not())};
}

SharedClasses::Rows SharedClasses::of_all_classes(const Rows& own) const {
  const at::Tensor all = group_->stacked(at::stack({own.log_sums, own.targets}));
  return {all.select(1, 0).logsumexp(0), all.select(1, 1).sum(0)};
}

at::Tensor cross_entropy_of_slice(const at::Tensor& logits, const at::Tensor& labels, int64_t reduction,
                                  int64_t ignore_index, bool in_float, const SharedClassesPtr& classes) {
  return CrossEntropy::apply(logits, labels, reduction, ignore_index, in_float, classes);
}

}  // namespace dslaunch::runtime::model::tensor_parallel
