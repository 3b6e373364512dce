#include "runtime/model/layers/chunked_head.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/device/device_module.hpp"
#include "runtime/model/layers/cross_entropy.hpp"
#include "runtime/model/layers/gemm_handle.hpp"
#include "runtime/model/layers/layer_functions.hpp"
#include "runtime/model/torchscript/units/weight_gemm.hpp"

namespace dslaunch::runtime::model::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using units::as_rows;

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// About 128 MiB of logits, but so many rows that the GEMM for the input's gradient, the one with the fewest tiles,
// has one for each multiprocessor of an H100. Chunks are about equal, in whole tiles.
int64_t rows_of_chunk(int64_t rows, int64_t classes, int64_t width, int64_t element_bytes) {
  constexpr int64_t kChunkBytes = int64_t{128} << 20, kTile = 128, kTiles = 132;
  const int64_t by_memory = kChunkBytes / (classes * element_bytes);
  const int64_t by_tiles = kTile * divide_up(kTiles, divide_up(width, kTile));
  const int64_t num_chunks = divide_up(rows, std::max(by_memory, by_tiles));
  return std::min(rows, kTile * divide_up(divide_up(rows, num_chunks), kTile));
}

// In which losses and sums over rows are computed.
at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

struct RowLosses {
  at::Tensor losses, log_sums;  // [rows]
  at::Tensor factor;            // 0-dim: of a row's loss in the total
};

// The loss of rows of logits and its gradient: kernels on GPUs, operators on CPUs. Of shared classes both compute those
// of the rank; a row whose label another rank has takes the rank's first class for it, and what comes of that is
// undone.
class LossOfRows {
 public:
  LossOfRows(const at::Tensor& labels, const HeadLoss& loss)
      : labels_(labels),
        ignore_index_(loss.ignore_index),
        is_mean_(loss.reduction == at::Reduction::Mean),
        shared_(loss.shared) {
    if (!shared_) return;
    auto [local, is_own] = shared_->local_labels(labels, ignore_index_);
    labels_ = std::move(local);
    ignore_index_ = tensor_parallel::SharedClasses::kIgnored;
    is_elsewhere_ = is_own.logical_or_(labels_.eq(ignore_index_)).logical_not_();
  }

  // With the factor, and without the losses.
  RowLosses start(at::TensorOptions options) const {
    RowLosses out{at::zeros(labels_.sizes(), options), at::empty(labels_.sizes(), options), at::empty({}, options)};
    if (labels_.is_cuda()) {
      device::module().layers.cross_entropy_total(out.losses, labels_, ignore_index_, is_mean_, at::empty({}, options),
                                                  out.factor);
    } else {
      is_mean_ ? out.factor.copy_(labels_.ne(ignore_index_).sum()).reciprocal_() : out.factor.fill_(1);
    }
    return out;
  }

  void compute(const at::Tensor& logits, int64_t first, const RowLosses& to) const {
    compute_here(logits, first, to);
    if (!shared_) return;
    const auto [labels, losses, log_sums] = part_of(logits, first, to);
    const at::Tensor is_ignored = labels.eq(ignore_index_),
                     is_elsewhere = is_elsewhere_.narrow(0, first, labels.size(0));
    const auto all = shared_->of_all_classes({log_sums, (log_sums - losses).masked_fill_(is_elsewhere, 0)});
    log_sums.copy_(all.log_sums);
    losses.copy_((all.log_sums - all.targets).masked_fill_(is_ignored, 0));
  }

  // The losses, and in the place of the logits the gradient of the total.
  void compute_to_gradient(at::Tensor& logits, int64_t first, const RowLosses& to) const {
    if (!logits.is_cuda() || shared_) {
      compute(logits, first, to);
      return to_gradient(logits, first, to, at::ones({}, to.factor.options()));
    }
    const auto [labels, losses, log_sums] = part_of(logits, first, to);
    device::module().layers.cross_entropy_to_gradient(logits, labels, ignore_index_, to.factor, losses, log_sums);
  }

  at::Tensor total(const RowLosses& rows) const {
    at::Tensor out = at::empty({}, rows.losses.options());
    if (out.is_cuda()) {
      device::module().layers.cross_entropy_total(rows.losses, labels_, ignore_index_, is_mean_, out, rows.factor);
      return out;
    }
    out = rows.losses.sum();
    return is_mean_ ? out / labels_.ne(ignore_index_).sum() : out;
  }

  // In the place of the logits.
  void to_gradient(at::Tensor& logits, int64_t first, const RowLosses& rows, const at::Tensor& upstream) const {
    if (!shared_) return to_gradient_here(logits, first, rows, upstream);
    const int64_t count = logits.size(0);
    const at::Tensor log_sums = rows.log_sums.narrow(0, first, count), first_class = logits.select(1, 0);
    const at::Tensor probabilities = (first_class.to(log_sums.scalar_type()) - log_sums).exp_();
    const at::Tensor undone = probabilities.mul_(rows.factor * upstream).to(logits.scalar_type());
    to_gradient_here(logits, first, rows, upstream);
    first_class.copy_(at::where(is_elsewhere_.narrow(0, first, count), undone, first_class));
  }

 private:
  void compute_here(const at::Tensor& logits, int64_t first, const RowLosses& to) const {
    const auto [labels, losses, log_sums] = part_of(logits, first, to);
    if (logits.is_cuda()) return device::module().layers.cross_entropy(logits, labels, ignore_index_, losses, log_sums);
    const at::Tensor wide = logits.to(losses.scalar_type()), is_ignored = labels.eq(ignore_index_);
    const at::Tensor classes = labels.masked_fill(is_ignored, 0).unsqueeze(1);
    log_sums.copy_(wide.logsumexp(1));
    losses.copy_((log_sums - wide.gather(1, classes).squeeze(1)).masked_fill_(is_ignored, 0));
  }

  void to_gradient_here(at::Tensor& logits, int64_t first, const RowLosses& rows, const at::Tensor& upstream) const {
    const auto [labels, losses, log_sums] = part_of(logits, first, rows);
    if (logits.is_cuda()) {
      device::module().layers.cross_entropy_gradient(logits, labels, ignore_index_, log_sums, rows.factor, upstream,
                                                     logits);
      return;
    }
    const at::Tensor is_ignored = labels.eq(ignore_index_).unsqueeze(1);
    at::Tensor gradient = (logits.to(log_sums.scalar_type()) - log_sums.unsqueeze(1)).exp_();
    const at::Tensor classes = labels.unsqueeze(1).masked_fill(is_ignored, 0);
    gradient.scatter_add_(1, classes, at::full_like(log_sums, -1).unsqueeze(1));
    logits.copy_(gradient.mul_(rows.factor * upstream).masked_fill_(is_ignored, 0));
  }

  struct Part {
    at::Tensor labels, losses, log_sums;
  };
  Part part_of(const at::Tensor& logits, int64_t first, const RowLosses& rows) const {
    const int64_t count = logits.size(0);
    // Recomputation does without the losses.
    return {labels_.narrow(0, first, count), rows.losses.defined() ? rows.losses.narrow(0, first, count) : at::Tensor(),
            rows.log_sums.narrow(0, first, count)};
  }

  at::Tensor labels_;
  int64_t ignore_index_;
  const bool is_mean_;
  const tensor_parallel::SharedClassesPtr shared_;
  at::Tensor is_elsewhere_;  // of shared classes: rows that count and whose label another rank has
};

// Its columns are the classes and, where GEMMs need rows at multiples of 16 bytes, zeros.
struct Head {
  at::Tensor rows;    // [rows, in]
  at::Tensor matrix;  // [in, columns]
  std::optional<at::Tensor> bias;
  bool is_out_in = true;
  int64_t classes = 0;
  int64_t most_columns = 0;  // of shared classes: of the rank that has the most
  device::GemmCachePtr gemms = {};
};

struct HeadGradients {
  at::Tensor rows;          // like the head's
  at::Tensor weight, bias;  // in the weight's layout; in sum_type(); of all columns

  void drop_padding(const Head& head) {
    if (weight.defined()) weight = weight.narrow(head.is_out_in ? 0 : 1, 0, head.classes);
    if (bias.defined()) bias = bias.narrow(0, 0, head.classes);
  }
};

// GEMMs on GPUs are several times slower if the rows of a matrix of 16 bits do not begin at multiples of 16
// bytes, as with the 50,257 tokens of GPT-2 or the 30,522 of BERT. A copy of the weight with more columns, a
// thousandth of what the GEMMs move, gives all of them such rows.
int64_t aligned_columns(int64_t classes, int64_t element_bytes) {
  constexpr int64_t kAligned = 16, kColumns = 64;
  return classes * element_bytes % kAligned == 0 ? classes : divide_up(classes, kColumns) * kColumns;
}

at::Tensor padded(const at::Tensor& values, int64_t dim, int64_t size) {
  if (values.size(dim) == size) return values;
  auto sizes = values.sizes().vec();
  sizes[static_cast<size_t>(dim)] = size;
  at::Tensor out = at::empty(sizes, values.options());
  out.narrow(dim, 0, values.size(dim)).copy_(values);
  out.narrow(dim, values.size(dim), size - values.size(dim)).zero_();
  return out;
}

void add_column_sums(at::Tensor& sums, const at::Tensor& values) {
  if (!values.is_cuda()) {
    sums.add_(values.sum(0, /*keepdim=*/false, sums.scalar_type()));
    return;
  }
  const at::Tensor more = at::empty_like(sums);
  device::module().layers.column_sums(values, more);
  sums.add_(more);
}

struct WantedGradients {
  bool rows = false, weight = false, bias = false;
  bool any() const { return rows || weight || bias; }
};

HeadGradients empty_gradients(const Head& head, WantedGradients wanted) {
  HeadGradients out;
  const auto options = head.rows.options().dtype(sum_type(head.rows.scalar_type()));
  if (wanted.rows) out.rows = at::empty(head.rows.sizes(), head.rows.options());
  if (wanted.weight) {
    out.weight = at::empty(head.is_out_in ? head.matrix.t().sizes() : head.matrix.sizes(), options);
  }
  if (wanted.bias) out.bias = at::zeros({head.matrix.size(1)}, options);
  return out;
}

void add_gradients(const Head& head, const at::Tensor& gradient, int64_t first, HeadGradients& to) {
  const at::Tensor rows = head.rows.narrow(0, first, gradient.size(0));
  if (to.rows.defined()) {
    device::multiply({gradient, head.matrix.t()}, to.rows.narrow(0, first, gradient.size(0)), head.gemms);
  }
  if (to.weight.defined()) {
    const device::GemmProblem gemm =
        head.is_out_in ? device::GemmProblem{gradient.t(), rows} : device::GemmProblem{rows.t(), gradient};
    device::multiply(gemm, to.weight, head.gemms, /*adds=*/first != 0);
  }
  if (to.bias.defined()) add_column_sums(to.bias, gradient);
}

// Calls take(logits of all columns, first row) for each chunk; it may write to the logits.
template <typename Take>
void for_each_chunk(const Head& head, int64_t chunk_rows, const Take& take) {
  const int64_t count = head.rows.size(0), columns = head.matrix.size(1);
  const int64_t rows = chunk_rows > 0 ? std::min(chunk_rows, count)
                                      : rows_of_chunk(count, head.most_columns, head.matrix.size(0),
                                                      static_cast<int64_t>(head.rows.element_size()));
  const at::Tensor buffer = at::empty({rows, columns}, head.rows.options());
  for (int64_t first = 0; first < count; first += rows) {
    at::Tensor logits = buffer.narrow(0, 0, std::min(rows, count - first));
    const at::Tensor part = head.rows.narrow(0, first, logits.size(0));
    device::multiply({part, head.matrix, head.bias}, logits, head.gemms);
    take(logits, first);
  }
}

at::Tensor with_operators(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                          const at::Tensor& labels, const std::optional<at::Tensor>& class_weights,
                          const HeadLoss& loss) {
  const bool has_bias = bias && bias->defined();
  const at::Tensor logits = loss.is_out_in ? at::linear(input, weight, bias)
                            : has_bias     ? at::addmm(*bias, input, weight)
                                           : at::matmul(input, weight);
  if (loss.shared) {
    return tensor_parallel::cross_entropy_of_slice(
        logits.flatten(0, -2), labels,
        {class_weights, loss.reduction, loss.ignore_index, loss.label_smoothing, loss.in_float}, loss.shared);
  }
  return fused_cross_entropy(logits.reshape({-1, loss.classes}), labels, class_weights, loss.reduction,
                             loss.ignore_index, loss.label_smoothing, loss.in_float);
}

// `value` times a number on the device, in another type; in its own memory if it is not needed any more.
at::Tensor scaled(at::Tensor value, const at::Tensor& factor, at::ScalarType type, bool is_last_use) {
  if (type != value.scalar_type()) {
    at::Tensor out = at::empty(value.sizes(), value.options().dtype(type));
    return at::mul_out(out, value, factor);
  }
  return is_last_use ? value.mul_(factor) : value * factor;
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& labels, const HeadLoss& loss,
                            WantedGradients wanted) {
    const Head head = head_of(input, weight, bias, loss);
    const LossOfRows of_rows(labels, loss);
    const auto options = head.rows.options().dtype(sum_type(input.scalar_type()));
    const RowLosses rows = of_rows.start(options);
    const bool computes_gradients = wanted.any() && input.scalar_type() != at::kHalf;
    HeadGradients gradients;
    if (computes_gradients) gradients = empty_gradients(head, wanted);
    for_each_chunk(head, loss.chunk_rows, [&](at::Tensor& logits, int64_t first) {
      at::Tensor of_classes = logits.narrow(1, 0, head.classes);
      if (!computes_gradients) return of_rows.compute(of_classes, first, rows);
      of_rows.compute_to_gradient(of_classes, first, rows);
      // Backward's work: who counts the FLOPs of a forward by its operators must not see it.
      const at::DisableRecordFunctionGuard unseen;
      add_gradients(head, logits, first, gradients);
    });
    gradients.drop_padding(head);
    if (wanted.any()) {
      context->save_for_backward({input, weight, bias.value_or(at::Tensor()), labels, rows.log_sums, rows.factor});
      keep(context, input, loss);
      context->saved_data["has_gradients"] = computes_gradients;
      keep(context, gradients);
    }
    return of_rows.total(rows).to(loss.in_float ? options.dtype().toScalarType() : input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list upstream) {
    if (at::GradMode::is_enabled()) return differentiable(context, upstream[0]);  // second-order gradients are wanted
    const bool is_last_use = !torch::autograd::get_current_graph_task_keep_graph();
    if (!context->saved_data.at("has_gradients").toBool()) {
      return computed_again(context, upstream[0].to(sum_type(upstream[0].scalar_type())).contiguous());
    }
    // The unpacking of a saved parameter would need it gathered.
    const auto type = static_cast<at::ScalarType>(context->saved_data.at("type").toInt());
    variable_list out(6);
    for (size_t i = 0; i < std::size(kGradients); ++i) {
      const auto kept = context->saved_data.find(kGradients[i]);
      if (kept == context->saved_data.end()) continue;
      at::Tensor gradient = kept->second.toTensor();
      if (is_last_use) context->saved_data.erase(kept);
      out[i] = scaled(std::move(gradient), upstream[0], type, is_last_use);
    }
    if (out[0].defined()) out[0] = out[0].view(context->saved_data.at("input_sizes").toIntVector());
    return out;
  }

 private:
  static constexpr char kShared[] = "shared_classes";
  static constexpr const char* kGradients[] = {"input_gradient", "weight_gradient", "bias_gradient"};

  static Head head_of(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      const HeadLoss& loss) {
    const bool is_out_in = loss.is_out_in;
    const int64_t classes = weight.size(is_out_in ? 0 : 1);
    const auto element_bytes = static_cast<int64_t>(weight.element_size());
    const int64_t columns = aligned_columns(classes, element_bytes);
    const at::Tensor all = padded(weight.detach(), is_out_in ? 0 : 1, columns);
    return {.rows = as_rows(input.detach()),
            .matrix = is_out_in ? all.t() : all,
            .bias = bias ? std::optional(padded(bias->detach(), 0, columns)) : std::nullopt,
            .is_out_in = is_out_in,
            .classes = classes,
            .most_columns = loss.shared ? aligned_columns(loss.shared->most(), element_bytes) : columns,
            .gemms = loss.gemms};
  }

  static void keep(AutogradContext* context, const HeadGradients& gradients) {
    const at::Tensor all[] = {gradients.rows, gradients.weight, gradients.bias};
    for (size_t i = 0; i < std::size(kGradients); ++i) {
      if (all[i].defined()) context->saved_data[kGradients[i]] = all[i];
    }
  }
  static void keep(AutogradContext* context, const at::Tensor& input, const HeadLoss& loss) {
    auto& data = context->saved_data;
    data["type"] = static_cast<int64_t>(input.scalar_type());
    data["input_sizes"] = input.sizes().vec();
    data["is_out_in"] = loss.is_out_in;
    data["classes"] = loss.classes;
    data["reduction"] = loss.reduction;
    data["ignore_index"] = loss.ignore_index;
    data["in_float"] = loss.in_float;
    data["chunk_rows"] = loss.chunk_rows;
    if (loss.shared) data[kShared] = c10::IValue::make_capsule(loss.shared);
    keep_gemms(*context, loss.gemms);
  }
  static HeadLoss loss_of(const AutogradContext* context) {
    const auto& data = context->saved_data;
    const auto shared = data.find(kShared);
    return {.is_out_in = data.at("is_out_in").toBool(),
            .classes = data.at("classes").toInt(),
            .reduction = data.at("reduction").toInt(),
            .ignore_index = data.at("ignore_index").toInt(),
            .in_float = data.at("in_float").toBool(),
            .chunk_rows = data.at("chunk_rows").toInt(),
            .gemms = kept_gemms(*context),
            .shared = shared == data.end() ? tensor_parallel::SharedClassesPtr()
                                           : c10::static_intrusive_pointer_cast<tensor_parallel::SharedClasses>(
                                                 shared->second.toCapsule())};
  }

  static variable_list computed_again(AutogradContext* context, const at::Tensor& upstream) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &labels = saved[3];
    const auto bias = saved[2].defined() ? std::optional(saved[2]) : std::nullopt;
    const HeadLoss loss = loss_of(context);
    const Head head = head_of(input, weight, bias, loss);
    const LossOfRows of_rows(labels, loss);
    const RowLosses rows{{}, saved[4], saved[5]};
    HeadGradients gradients = empty_gradients(
        head, {context->needs_input_grad(0), context->needs_input_grad(1), bias && context->needs_input_grad(2)});
    for_each_chunk(head, loss.chunk_rows, [&](at::Tensor& logits, int64_t first) {
      at::Tensor of_classes = logits.narrow(1, 0, head.classes);
      of_rows.to_gradient(of_classes, first, rows, upstream);
      add_gradients(head, logits, first, gradients);
    });
    gradients.drop_padding(head);
    variable_list out(6);
    if (gradients.rows.defined()) out[0] = gradients.rows.view(input.sizes());
    if (gradients.weight.defined()) out[1] = gradients.weight.to(input.scalar_type());
    if (gradients.bias.defined()) out[2] = gradients.bias.to(input.scalar_type());
    return out;
  }

  static variable_list differentiable(AutogradContext* context, const at::Tensor& upstream) {
    const auto saved = context->get_saved_variables();
    const auto bias = saved[2].defined() ? std::optional(saved[2]) : std::nullopt;
    const at::Tensor total = with_operators(saved[0], saved[1], bias, saved[3], {}, loss_of(context));
    variable_list inputs, out(6);
    for (size_t i = 0; i < 3; ++i) {
      if (saved[i].defined() && saved[i].requires_grad()) inputs.push_back(saved[i]);
    }
    auto gradients = torch::autograd::grad({total}, inputs, {upstream}, true, /*create_graph=*/true);
    size_t next = 0;
    for (size_t i = 0; i < 3; ++i) {
      if (saved[i].defined() && saved[i].requires_grad()) out[i] = gradients[next++];
    }
    return out;
  }
};

// The types that the loss takes: those of the kernels, computed in fp32; on CPUs also fp64.
bool takes(const at::Tensor& input, bool in_float) {
  const auto type = input.scalar_type();
  if (type == at::kDouble) return input.is_cpu() && !in_float;
  return (input.is_cuda() || input.is_cpu()) && is_kernel_type(type);
}

bool fits(const at::Tensor& input, const at::Tensor& weight, const at::Tensor* bias, const at::Tensor& labels,
          const HeadLoss& loss) {
  if (input.dim() < 1 || weight.dim() != 2 || labels.dim() != 1 || input.layout() != at::kStrided) return false;
  const auto same_kind = [&](const at::Tensor& other) {
    return other.scalar_type() == input.scalar_type() && other.device() == input.device();
  };
  const int64_t width = weight.size(loss.is_out_in ? 1 : 0), classes = weight.size(loss.is_out_in ? 0 : 1);
  // Of shared classes all ranks decide alike.
  const bool fits_classes = loss.shared ? loss.shared->fewest() > 0 : classes > 0 && classes == loss.classes;
  return takes(input, loss.in_float) && same_kind(weight) && input.numel() > 0 && input.size(-1) == width &&
         fits_classes && labels.scalar_type() == at::kLong && labels.device() == input.device() &&
         labels.size(0) == input.numel() / width &&
         (bias == nullptr || (same_kind(*bias) && bias->dim() == 1 && bias->size(0) == classes));
}

}  // namespace

at::Tensor chunked_cross_entropy(const at::Tensor& input, const at::Tensor& weight,
                                 const std::optional<at::Tensor>& bias, const at::Tensor& labels,
                                 const std::optional<at::Tensor>& class_weights, const HeadLoss& loss) {
  const at::Tensor* given = bias && bias->defined() ? &*bias : nullptr;
  const bool is_plain = loss.label_smoothing == 0.0 && loss.reduction != at::Reduction::None &&
                        !(class_weights && class_weights->defined()) &&
                        !at::autocast::is_autocast_enabled(input.device().type());
  if (!is_plain || !fits(input, weight, given, labels, loss)) {
    return with_operators(input, weight, bias, labels, class_weights, loss);
  }
  const auto is_wanted = [](const at::Tensor* tensor) {
    return tensor != nullptr && at::GradMode::is_enabled() && tensor->requires_grad();
  };
  return ChunkedCrossEntropy::apply(input, weight, given != nullptr ? std::optional(*given) : std::nullopt,
                                    labels.contiguous(), loss,
                                    WantedGradients{is_wanted(&input), is_wanted(&weight), is_wanted(given)});
}

}  // namespace dslaunch::runtime::model::layers
