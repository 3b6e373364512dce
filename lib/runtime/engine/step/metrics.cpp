#include "runtime/engine/step/metrics.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/resource_error.hpp"
#include "runtime/data/batch_assembly.hpp"
#include "runtime/engine/step/class_dim.hpp"
#include "runtime/engine/step/output_choice.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/plain_execution.hpp"
#include "runtime/sharding/all_gather_object.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

double ratio(const at::Tensor& sums) {
  const double denominator = sums[1].item<double>();
  return denominator == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[0].item<double>() / denominator;
}

bool may_have_classes_second(const at::Tensor& outputs, const at::Tensor& labels) {
  return outputs.dim() == labels.dim() + 1 && labels.dim() > 0 && outputs.size(0) == labels.size(0) &&
         has_classes_second(outputs, labels);
}

class Accuracy : public ResultMetric {
 public:
  explicit Accuracy(bool prefers_second) : prefers_second_(prefers_second) {}

  at::Tensor sums_of(const Predictions& batch) override {
    const at::Tensor& outputs = batch.outputs;
    if (batch.labels.is_floating_point()) {
      refuse_shapes(batch, "labels are floats, and accuracy compares classes: save class labels as integers");
    }
    const bool is_last = has_classes_last(outputs, batch.labels),
               is_second = may_have_classes_second(outputs, batch.labels);
    if (!is_last && !is_second)
      refuse_shapes(batch, "the outputs have no dim of classes beside the dims of the labels");
    const int64_t dim = is_second && (prefers_second_ || !is_last) ? 1 : outputs.dim() - 1;
    if (outputs.size(dim) < 2) refuse_shapes(batch, "one class is always right");
    const at::Tensor labels = batch.labels.to(at::kLong), counts = labels.ne(kIgnoredLabel);
    return at::stack({outputs.argmax(dim).eq(labels).logical_and(counts).sum(), counts.sum()});
  }
  double value_of(const at::Tensor& sums) override { return ratio(sums); }

 private:
  [[noreturn]] static void refuse_shapes(const Predictions& batch, const char* why) {
    refuse(
        fmt::format("train.metrics: accuracy of outputs {} and labels {}: {}; leave accuracy out, or give a metric of "
                    "your own: {{\"name\": …, \"module\": \"metric.pt\"}}",
                    type_and_shape(batch.outputs), type_and_shape(batch.labels), why));
  }

  const bool prefers_second_;
};

// Runs code of a user's file; `during` names it and its arguments.
template <class Function>
auto guarded(const std::string& during, Function function) {
  try {
    const model::torchscript::PlainExecution plain;
    return function();
  } catch (const std::exception& error) {
    const auto cause = model::file::cause_of(error);
    throw_if_resource_failed(cause, during);
    refuse(fmt::format("{} failed: {}", during, cause));
  }
}

class ModuleMetric : public ResultMetric {
 public:
  ModuleMetric(const config::EvaluationMetric& metric, const config::Kernels& kernels, at::Device device)
      : what_(fmt::format("train.metrics: '{}' of '{}'", metric.name, metric.module)),
        module_(model::file::load_mapped_module(metric.module)),
        device_(device) {
    if (!module_.find_method("forward")) refuse(what_ + " has no method 'forward'");
    module_.to(device);
    module_.eval();
    model::torchscript::run_loss_passes(module_, kernels, device);
  }

  at::Tensor sums_of(const Predictions& batch) override {
    const std::string during = fmt::format("{} of outputs {} and labels {}", what_, type_and_shape(batch.outputs),
                                           type_and_shape(batch.labels));
    const at::Tensor sums = guarded(during, [&] {
      return module_.forward({batch.outputs.to(at::kFloat), batch.labels}).toTensor();
    });
    const bool has_compute = module_.find_method("compute").has_value();
    if (sums.dim() != 1 || sums.numel() == 0 || sums.is_complex() || (!has_compute && sums.numel() != 2)) {
      refuse(fmt::format("{} returned {}, expected {}", during, type_and_shape(sums),
                         has_compute ? "a tensor of one dim: the sums that its compute() takes"
                                     : "a tensor of two sums, numerator and denominator; for others give the module a "
                                       "method compute(sums)"));
    }
    return sums;
  }

  double value_of(const at::Tensor& sums) override {
    if (!module_.find_method("compute")) return ratio(sums);
    const std::string during = fmt::format("{}: compute of {}", what_, type_and_shape(sums));
    const auto value = guarded(during, [&] { return module_.get_method("compute")({sums.to(device_)}); });
    if (value.isTensor() && value.toTensor().numel() == 1) return value.toTensor().item<double>();
    if (value.isScalar() && !value.isComplexDouble()) return value.toScalar().toDouble();
    refuse(fmt::format("{} returned {}, expected one number", during,
                       value.isTensor() ? type_and_shape(value.toTensor()) : value.tagKind()));
  }

 private:
  const std::string what_;
  torch::jit::Module module_;
  const at::Device device_;
};

// Floating tensors beside the loss, in their order.
std::vector<NamedOutput> outputs_beside_loss(const model::ForwardResult& result) {
  auto all = outputs_of(result);
  const bool is_first_the_loss = !result.named_loss.defined();
  std::erase_if(all, [&](const NamedOutput& one) {
    return (is_first_the_loss && one.value.is_same(result.first)) || !one.value.is_floating_point();
  });
  return all;
}

// Whether the tensor can be the logits of these labels.
bool fits(const at::Tensor& outputs, const at::Tensor& labels) {
  return has_classes_last(outputs, labels) || may_have_classes_second(outputs, labels);
}

// Beside the loss; `metric`: for messages.
NamedOutput choose_beside_loss(const model::ForwardResult& result, const at::Tensor& labels, const std::string& wanted,
                               const std::string& metric) {
  auto outputs = outputs_beside_loss(result);
  if (outputs.empty()) {
    refuse(
        fmt::format("train.metrics: {} needs the model's outputs, and forward returns only the loss: export the model "
                    "with --returns loss_logits, or let forward return (loss, outputs); or leave {} out",
                    metric, metric));
  }
  const auto fit = [&](const NamedOutput& one) { return fits(one.value, labels); };
  if (wanted.empty() && std::any_of(outputs.begin(), outputs.end(), fit)) std::erase_if(outputs, std::not_fn(fit));
  return choose_output(outputs, result.has_own_names, wanted, "train.metrics: " + metric);
}

Predictions without_shift(const Predictions& whole) {
  const auto& [outputs, labels] = whole;
  if (labels.dim() < 2 || !has_classes_last(outputs, labels) || labels.size(-1) == 0) return whole;
  const int64_t length = labels.size(-1) - 1;
  return {outputs.narrow(labels.dim() - 1, 0, length), labels.narrow(-1, 1, length)};
}

std::string bytes_of(const at::Tensor& sums) {
  const at::Tensor host = sums.cpu().contiguous();
  return {static_cast<const char*>(host.const_data_ptr()), host.nbytes()};
}

at::Tensor sums_of_bytes(const std::string& bytes) {
  at::Tensor out = at::empty({static_cast<int64_t>(bytes.size() / sizeof(double))}, at::kDouble);
  std::memcpy(out.mutable_data_ptr(), bytes.data(), bytes.size());
  return out;
}

}  // namespace

Predictions find_predictions(const model::ForwardResult& result, const std::vector<at::Tensor>& labels,
                             const PredictionSource& source, const std::string& metric) {
  if (labels.size() != 1) {
    refuse(
        fmt::format("train.metrics: {} takes one array of labels, but the data names {}; set \"data\": {{\"labels\": "
                    "[NAME]}}, or leave it out",
                    metric, labels.size()));
  }
  if (!source.has_own_loss) {
    return {choose_output(result, source.outputs, "train.metrics: " + metric).value, labels[0]};
  }
  const Predictions whole{choose_beside_loss(result, labels[0], source.outputs, metric).value, labels[0]};
  return source.shifts ? without_shift(whole) : whole;
}

std::unique_ptr<ResultMetric> make_accuracy(bool prefers_second) {
  return std::make_unique<Accuracy>(prefers_second);
}

std::unique_ptr<ResultMetric> make_module_metric(const config::EvaluationMetric& metric, const config::Kernels& kernels,
                                                 at::Device device) {
  return std::make_unique<ModuleMetric>(metric, kernels, device);
}

Metrics::Metrics(const config::JobConfig& config, LabelConvention labels, at::Device device, bool tells)
    : source_{config.loss.empty(), config.loss.empty() && labels == LabelConvention::kSame, config.outputs},
      device_(device),
      tells_(tells && config.loss.empty()) {
  for (const auto& metric : config.train.metrics) {
    Entry entry{metric.name, nullptr, {}};
    if (!metric.module.empty()) {
      entry.metric = make_module_metric(metric, config.kernels, device);
    } else if (metric.name == "accuracy") {
      entry.metric = make_accuracy(/*prefers_second=*/!source_.has_own_loss);
    }
    reads_results_ |= entry.metric != nullptr;
    entries_.push_back(std::move(entry));
  }
}

void Metrics::begin() {
  for (auto& entry : entries_) entry.sums = at::Tensor();
}

void Metrics::add(const model::ForwardResult& result, const std::vector<at::Tensor>& labels) {
  for (auto& entry : entries_) {
    if (entry.metric == nullptr) continue;
    const Predictions batch = find_predictions(result, labels, source_, entry.name);
    if (std::exchange(tells_, false)) {
      const auto chosen = choose_beside_loss(result, labels[0], source_.outputs, entry.name);
      if (const auto line = describe_choice(result, chosen, "train.metrics"); !line.empty()) log::info("{}", line);
    }
    const at::Tensor sums = entry.metric->sums_of(batch).to(at::kDouble);
    if (entry.sums.defined() && entry.sums.sizes() != sums.sizes()) {
      refuse(fmt::format("train.metrics: '{}' returned {} sums for one batch and {} for another", entry.name,
                         entry.sums.numel(), sums.numel()));
    }
    entry.sums = entry.sums.defined() ? entry.sums + sums : sums;
  }
}

// In the order of the ranks, so that every rank has the same sum. Undefined: no rank has any.
at::Tensor Metrics::sum_over_ranks(const Entry& entry, const comm::Groups& groups) const {
  const bool has_own = entry.sums.defined() && groups.contributes_loss();
  at::Tensor total;
  for (const auto& bytes : gather_texts(groups.world, device_, has_own ? bytes_of(entry.sums) : "")) {
    if (bytes.empty()) continue;
    const at::Tensor sums = sums_of_bytes(bytes);
    if (total.defined() && total.numel() != sums.numel()) {
      refuse(fmt::format("train.metrics: '{}' returned {} sums on one rank and {} on another", entry.name,
                         total.numel(), sums.numel()));
    }
    total = total.defined() ? total + sums : sums;
  }
  return total;
}

std::vector<std::pair<std::string, double>> Metrics::finish(double label_loss, const comm::Groups& groups) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, double>> out;
  for (const auto& entry : entries_) {
    if (entry.metric == nullptr) {
      out.emplace_back(entry.name, std::exp(label_loss));
      continue;
    }
    const at::Tensor sums = sum_over_ranks(entry, groups);
    out.emplace_back(entry.name,
                     sums.defined() ? entry.metric->value_of(sums) : std::numeric_limits<double>::quiet_NaN());
  }
  return out;
}

}  // namespace dslaunch::runtime::engine::step
