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

// A row's loss is (1 - s) w_y (L - z_y) + s / C sum over the classes c of w_c (L - z_c), with L the logarithm of the
// sum of the exponentials of the logits z, the class weights w and the label smoothing s.
class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& labels,
                            const LossSettings& settings, const SharedClassesPtr& classes) {
    const at::Tensor values = widened(logits);
    const auto [local, is_own] = classes->local_labels(labels, settings.ignore_index);
    const at::Tensor counts = local.ne(SharedClasses::kIgnored), targets = local.masked_fill(counts.logical_not(), 0);
    const at::Tensor weights = own_weights(settings, values, *classes);
    const double smoothing = settings.label_smoothing;
    SharedClasses::Rows own{at::full({values.size(0)}, -kInfinity, values.options()),
                            at::zeros({values.size(0)}, values.options())};
    if (values.size(1) > 0) {
      own.log_sums = values.logsumexp(1);
      own.targets = values.gather(1, targets.unsqueeze(1)).squeeze(1).masked_fill(is_own.logical_not(), 0);
    }
    if (weights.defined()) {
      const bool has_classes = values.size(1) > 0;
      own.sums.push_back(has_classes ? weights.index_select(0, targets).masked_fill(is_own.logical_not(), 0)
                                     : at::zeros_like(own.targets));
    }
    if (smoothing != 0) own.sums.push_back(weights.defined() ? values.matmul(weights) : values.sum(1));
    const auto rows = classes->of_all_classes(own);
    const at::Tensor of_label = weights.defined() ? rows.sums[0] : at::ones_like(rows.targets);
    const at::Tensor of_classes = sum_of_weights(settings, values, *classes);
    at::Tensor losses = of_label * (rows.log_sums - rows.targets);
    const double share = smoothing / static_cast<double>(classes->count());
    if (smoothing != 0) losses = losses * (1 - smoothing) + (of_classes * rows.log_sums - rows.sums.back()) * share;
    losses = losses.masked_fill(counts.logical_not(), 0);
    at::Tensor factor = at::ones({}, values.options());
    if (settings.reduction == at::Reduction::Mean) {
      factor = of_label.masked_fill(counts.logical_not(), 0).sum().reciprocal();
    }
    if (settings.reduction != at::Reduction::None) losses = losses.sum() * factor;
    context->saved_data["smoothing"] = smoothing;
    context->saved_data["share"] = share;
    context->save_for_backward(
        {logits, targets, is_own, counts, rows.log_sums, factor, of_label * (1 - smoothing), of_classes, weights});
    return settings.in_float ? losses : losses.to(logits.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    if (at::GradMode::is_enabled()) {
      throw UserError(ExitCode::kBadInput,
                      "cannot compute a gradient of a gradient through a loss whose classes are split among tensor "
                      "ranks: set \"tensor_parallel\": {\"size\": 1}, or keep the model's head whole");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &targets = saved[1], &is_own = saved[2], &counts = saved[3];
    const at::Tensor &of_label = saved[6], &of_classes = saved[7], &weights = saved[8];
    const double share = context->saved_data["share"].toDouble();
    at::Tensor gradient = (widened(logits) - saved[4].unsqueeze(1)).exp_();
    gradient.mul_((of_label + of_classes * share).unsqueeze(1));
    if (gradient.size(1) > 0) {
      gradient.scatter_add_(1, targets.unsqueeze(1),
                            (of_label * is_own.to(gradient.scalar_type())).neg_().unsqueeze(1));
    }
    if (context->saved_data["smoothing"].toDouble() != 0) {
      weights.defined() ? gradient.sub_(weights * share) : gradient.sub_(share);
    }
    const at::Tensor factors = (upstream[0].to(gradient.scalar_type()) * saved[5]).expand({logits.size(0)});
    gradient.mul_(factors.unsqueeze(1)).masked_fill_(counts.logical_not().unsqueeze(1), 0);
    return {gradient.to(logits.scalar_type()), {}, {}, {}};
  }

 private:
  static at::Tensor widened(const at::Tensor& logits) {
    return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  }

  // Not defined without class weights.
  static at::Tensor own_weights(const LossSettings& settings, const at::Tensor& values, const SharedClasses& classes) {
    if (!settings.class_weights || !settings.class_weights->defined()) return {};
    return part_of(settings.class_weights->detach().to(values.scalar_type()), 0, classes.own_ranges());
  }

  static at::Tensor sum_of_weights(const LossSettings& settings, const at::Tensor& values,
                                   const SharedClasses& classes) {
    if (settings.class_weights && settings.class_weights->defined()) {
      return settings.class_weights->detach().to(values.scalar_type()).sum();
    }
    return at::full({}, static_cast<double>(classes.count()), values.options());
  }
};

}  // namespace

int64_t SharedClasses::count() const {
  return whole_length_of(layout_);
}

const std::vector<Range>& SharedClasses::own_ranges() const {
  return layout_.at(static_cast<size_t>(group_->rank()));
}

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
  at::_assert_async(labels.ge(0).logical_and_(labels.lt(count())).logical_or_(is_ignored).all(),
                    "a label that is not a class");
  auto [local, is_own] = local_indices(labels, own_ranges());
  return {local.masked_fill(is_ignored, kIgnored), is_own.logical_and(is_ignored.logical_not())};
}

SharedClasses::Rows SharedClasses::of_all_classes(const Rows& own) const {
  std::vector<at::Tensor> numbers{own.log_sums, own.targets};
  numbers.insert(numbers.end(), own.sums.begin(), own.sums.end());
  const at::Tensor all = group_->stacked(at::stack(numbers));
  Rows out{all.select(1, 0).logsumexp(0), all.select(1, 1).sum(0)};
  for (size_t i = 2; i < numbers.size(); ++i) out.sums.push_back(all.select(1, static_cast<int64_t>(i)).sum(0));
  return out;
}

at::Tensor cross_entropy_of_slice(const at::Tensor& logits, const at::Tensor& labels, const LossSettings& settings,
                                  const SharedClassesPtr& classes) {
  return CrossEntropy::apply(logits, labels, settings, classes);
}

}  // namespace dslaunch::runtime::model::tensor_parallel
