#include "runtime/engine/step/loss.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/engine/step/class_dim.hpp"
#include "runtime/engine/step/output_choice.hpp"
#include "runtime/model/analysis/capture_obstacles.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

constexpr const char* kNameALoss =
    "name a loss of its outputs: --loss cross_entropy, --loss mse or --loss path/to/loss.pt, or \"loss\" in the config";

// One number with dims, [1] or [1, 1], is a loss only by its name: predictions of one sample look the same.
at::Tensor require_scalar(const at::Tensor& loss, const std::string& whose, bool has_dims = true) {
  if (loss.numel() == 1 && (has_dims || loss.dim() == 0) && loss.is_floating_point()) return loss.reshape({});
  if (loss.numel() == 1 && loss.dim() == 0 && !loss.is_floating_point()) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} returned {}, a number that is not of a floating-point type and has no gradient. "
                                "Return the mean loss from forward as a floating-point number, or {}",
                                whose, type_and_shape(loss), kNameALoss));
  }
  throw UserError(ExitCode::kBadInput,
                  fmt::format("{} returned {}, expected a scalar loss. Return the mean loss from forward, or {}", whose,
                              type_and_shape(loss), kNameALoss));
}

class ModelsOwnLoss : public Loss {
 public:
  bool takes_labels() const override { return false; }
  at::Tensor operator()(const model::ForwardResult& result, const std::vector<at::Tensor>&) override {
    if (result.named_loss.defined()) return require_scalar(result.named_loss, "forward");
    if (result.is_dict) {
      throw UserError(
          ExitCode::kBadInput,
          fmt::format("forward returned a dict without a tensor named \"loss\". Give the mean loss that name, "
                      "or {}",
                      kNameALoss));
    }
    require_no_other_scalar(result);
    return require_scalar(result.first, "forward", /*has_dims=*/false);
  }

 private:
  // (outputs, loss): with one sample and one output, the outputs are a single number as well.
  static void require_no_other_scalar(const model::ForwardResult& result) {
    if (result.first.dim() == 0) return;
    for (const auto& other : result.others) {
      if (other.dim() > 0 || !other.is_floating_point()) continue;
      throw UserError(ExitCode::kBadInput,
                      fmt::format("forward returned {} first and a scalar after it: the loss must be the first element "
                                  "of a tuple, as a scalar, or have the name \"loss\" in a dict or a NamedTuple",
                                  type_and_shape(result.first)));
    }
  }
};

// A loss of outputs and labels; reports the operator's errors with both shapes.
class LabelledLoss : public Loss {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;
  LabelledLoss(const std::string& name, std::string outputs, Function function, Result<> capturable = {})
      : whose_(fmt::format("loss '{}'", name)),
        outputs_(std::move(outputs)),
        function_(std::move(function)),
        capturable_(std::move(capturable)) {}

  bool takes_labels() const override { return true; }
  Result<> check_capturable() const override { return capturable_; }
  at::Tensor operator()(const model::ForwardResult& result, const std::vector<at::Tensor>& labels) override {
    if (labels.size() != 1) {
      throw UserError(ExitCode::kBadInput, fmt::format("{} takes one array of labels, but the data names {}; set "
                                                       "\"data\": {{\"labels\": [NAME]}}",
                                                       whose_, labels.size()));
    }
    const at::Tensor outputs = choose_output(result, outputs_, whose_).value;
    try {
      return require_scalar(function_(outputs, labels[0]), whose_);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const auto what =
          fmt::format("{} of outputs {} and labels {}", whose_, type_and_shape(outputs), type_and_shape(labels[0]));
      const auto cause = model::file::cause_of(error);
      throw_if_resource_failed(cause, what);
      throw UserError(ExitCode::kBadInput, fmt::format("{} failed: {}", what, cause));
    }
  }

  std::string describe_choice(const model::ForwardResult& result,
                              const std::vector<at::Tensor>& labels) const override {
    return step::describe_choice(result, choose_output(result, outputs_, whose_),
                                 fmt::format("{} with labels {}", whose_, types_and_shapes(labels)));
  }

 private:
  const std::string whose_, outputs_;
  const Function function_;
  const Result<> capturable_;
};

// Turns a loss computed elsewhere, which is assumed to be the mean over the labels that count, into their sum. The
// labels are counted on the device: a captured step sees different labels at each replay.
class SummedLoss : public Loss {
 public:
  // `shifts`: the first label of a sample does not count.
  SummedLoss(std::unique_ptr<Loss> mean, bool shifts) : mean_(std::move(mean)), shifts_(shifts) {}

  bool takes_labels() const override { return mean_->takes_labels(); }
  Result<> check_capturable() const override { return mean_->check_capturable(); }
  // A mean over no labels is 0/0, also in its gradients: if no label counts, the mean is computed over other labels and
  // gets weight zero.
  std::vector<at::Tensor> usable(const std::vector<at::Tensor>& labels) const override {
    const at::Tensor& own = labels.at(0);
    return {at::where(which_count(own).any(), own, at::zeros_like(own))};
  }
  at::Tensor operator()(const model::ForwardResult& result, const std::vector<at::Tensor>& labels) override {
    return (*mean_)(result, usable(labels)).to(at::kFloat) * which_count(labels.at(0)).sum().to(at::kFloat);
  }
  std::string describe_choice(const model::ForwardResult& result,
                              const std::vector<at::Tensor>& labels) const override {
    return mean_->describe_choice(result, labels);
  }

 private:
  at::Tensor which_count(const at::Tensor& all_labels) const {
    const bool shifts = shifts_ && all_labels.dim() >= 2 && all_labels.size(-1) > 0;
    const at::Tensor labels = shifts ? all_labels.narrow(-1, 1, all_labels.size(-1) - 1) : all_labels;
    if (labels.is_floating_point()) return at::ones_like(labels, labels.options().dtype(at::kBool));
    return labels.to(at::kLong).ne(kIgnoredLabel);
  }

  const std::unique_ptr<Loss> mean_;
  const bool shifts_;
};

// Classes are in dim 1, as PyTorch defines it; if the shapes do not allow that and there is one label for each row of
// all dims before the last, as in language models, classes are in the last dim. Computed in fp32; labels may be
// integers of any type, while PyTorch's operator takes only int64.
class CrossEntropy {
 public:
  CrossEntropy(int64_t reduction, bool own_kernels) : reduction_(reduction), own_kernels_(own_kernels) {}

  at::Tensor operator()(const at::Tensor& outputs, const at::Tensor& given) const {
    TORCH_CHECK(reduction_ != at::Reduction::Sum || !given.is_floating_point(),
                "\"loss_average\": \"tokens\" counts labels, but these are probabilities of classes");
    TORCH_CHECK(!given.is_floating_point() || given.sizes() == outputs.sizes(),
                "labels of floats are probabilities, in the outputs' shape; save class labels as integers");
    const at::Tensor labels = given.is_floating_point() ? given : given.to(at::kLong);
    const bool is_second = has_classes_second(outputs, labels) || !has_classes_last(outputs, labels);
    TORCH_CHECK(outputs.dim() < 2 || outputs.size(is_second ? 1 : -1) != 1,
                "with one class the loss is always 0: the outputs need a column for each class, or the loss is mse");
    if (is_second) return in_float(outputs, labels);
    return in_float(outputs.reshape({-1, outputs.size(-1)}), labels.reshape({-1}));
  }

 private:
  at::Tensor in_float(const at::Tensor& outputs, const at::Tensor& labels) const {
    if (!own_kernels_) return at::cross_entropy_loss(outputs.to(at::kFloat), labels, {}, reduction_);
    return model::layers::fused_cross_entropy(outputs, labels, {}, reduction_, kIgnoredLabel, /*label_smoothing=*/0.0,
                                              /*in_float=*/true);
  }

  int64_t reduction_;
  bool own_kernels_;
};

template <at::Reduction::Reduction reduction>
at::Tensor squared_error(const at::Tensor& outputs, const at::Tensor& labels) {
  if (outputs.sizes() != labels.sizes()) {  // broadcasting here is nearly always a mistake
    TORCH_CHECK(false, "the shapes differ");
  }
  return at::mse_loss(outputs.to(at::kFloat), labels.to(at::kFloat), reduction);
}

}  // namespace

std::unique_ptr<Loss> make_loss(const std::string& name, at::Device device, config::LossAverage average,
                                const config::Kernels& kernels, bool forward_shifts, const std::string& outputs) {
  const bool sum = average == config::LossAverage::kTokens;
  if (name == "cross_entropy") {
    const auto reduction = sum ? at::Reduction::Sum : at::Reduction::Mean;
    return std::make_unique<LabelledLoss>(name, outputs, CrossEntropy(reduction, kernels.cross_entropy));
  }
  if (name == "mse") {
    return std::make_unique<LabelledLoss>(name, outputs,
                                          sum ? squared_error<at::Reduction::Sum> : squared_error<at::Reduction::Mean>);
  }
  const auto weighed = [&](std::unique_ptr<Loss> mean) -> std::unique_ptr<Loss> {
    if (!sum) return mean;
    return std::make_unique<SummedLoss>(std::move(mean), name.empty() && forward_shifts);
  };
  if (name.empty()) return weighed(std::make_unique<ModelsOwnLoss>());
  auto module = std::make_shared<torch::jit::Module>(model::file::load_mapped_module(name));
  module->to(device);
  model::torchscript::run_loss_passes(*module, kernels, device);
  const auto call = [module](const at::Tensor& of_model, const at::Tensor& labels) {
    const model::torchscript::PlainExecution plain;
    return module->forward({of_model, labels}).toTensor();
  };
  return weighed(std::make_unique<LabelledLoss>(name, outputs, call, model::analysis::check_capturable(*module)));
}

}  // namespace dslaunch::runtime::engine::step
