// Steps of a small block with its parameters in flat buffers, whose weight gradients are written there or copied there,
// and the same without any of ours in fp64. On any device.
#pragma once
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/torch.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/model/layers/linear.hpp"
#include "runtime/model/torchscript/units/gather_node.hpp"
#include "runtime/sharding/flat_parameters.hpp"
#include "support/thread_communicator.hpp"

namespace dslaunch::test {

struct WrittenGradientsCase {
  int stage = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  int64_t micro_batches = 2;
  at::ScalarType accumulation_dtype = at::kFloat;
  bool writes = true;
};

struct StepGradients {
  std::vector<at::Tensor> of_parameters;  // fp64, 1-D, on the CPU
  int64_t num_copied = 0;                 // elements that went from gradients into buffers
};

// Of all threads, while it exists.
class CountedCopies {
 public:
  CountedCopies() {
    count_ = 0;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&begin).needsInputs(true));
  }
  ~CountedCopies() { at::removeCallback(handle_); }
  CountedCopies(const CountedCopies&) = delete;
  CountedCopies& operator=(const CountedCopies&) = delete;
  int64_t count() const { return count_; }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    const std::string_view name = function.name();
    if (name != "aten::_foreach_copy_" && name != "aten::_foreach_add_") return nullptr;
    for (const at::Tensor& from : function.inputs()[1].toTensorVector()) count_ += from.numel();
    return nullptr;
  }

  static inline std::atomic<int64_t> count_ = 0;
  at::CallbackHandle handle_ = 0;
};

inline constexpr int64_t kBlockRows = 5, kBlockIn = 8, kBlockHidden = 16;

// The root's scale; the block's weight of a linear layer with bias, used again transposed, and that of a GEMM.
inline std::vector<at::Tensor> block_values(at::ScalarType dtype) {
  at::manual_seed(21);
  std::vector<at::Tensor> out;
  for (const auto& shape :
       {std::vector<int64_t>{kBlockIn}, {kBlockHidden, kBlockIn}, {kBlockHidden}, {kBlockIn, kBlockHidden}})
    out.push_back(at::randn(shape).to(dtype));
  return out;
}

inline at::Tensor block_input(int64_t micro_batch, at::ScalarType dtype) {
  at::manual_seed(100 + static_cast<uint64_t>(micro_batch));
  return at::randn({2, kBlockRows, kBlockIn}).to(dtype);
}

template <typename Linear, typename Matmul>
at::Tensor block_loss(const at::Tensor& input, const std::vector<at::Tensor>& p, const Linear& linear,
                      const Matmul& matmul) {
  const at::Tensor hidden = at::tanh(linear(input, p[1], p[2])) + at::tanh(matmul(input, p[3]));
  return (at::tanh(matmul(hidden, p[1])) * p[0]).sum();
}

inline StepGradients exact_gradients(const WrittenGradientsCase& c) {
  std::vector<at::Tensor> leaves;
  for (const auto& value : block_values(c.dtype)) leaves.push_back(value.to(at::kDouble).requires_grad_());
  const auto linear = [](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) { return at::linear(x, w, b); };
  const auto matmul = [](const at::Tensor& x, const at::Tensor& w) { return at::matmul(x, w); };
  for (int64_t i = 0; i < c.micro_batches; ++i) {
    block_loss(block_input(i, c.dtype).to(at::kDouble), leaves, linear, matmul).backward();
  }
  StepGradients out;
  for (const auto& leaf : leaves) out.of_parameters.push_back(leaf.grad().reshape({-1}));
  return out;
}

inline StepGradients step_gradients(const WrittenGradientsCase& c) {
  using namespace runtime;
  namespace units = model::units;
  namespace layers = model::layers;
  const auto values = block_values(c.dtype);
  ParameterTable table;
  for (size_t i = 0; i < values.size(); ++i) {
    table.parameters.push_back(
        {"p" + std::to_string(i), values[i].sizes().vec(), values[i].numel(), c.dtype, true, i == 0 ? 0 : 1, {}});
  }
  table.units = {{"", {0}}, {"block", {1, 2, 3}}};
  ShardingOptions options;
  options.stage = c.stage;
  options.device = c.device;
  options.compute_dtypes.assign(values.size(), c.dtype);
  options.accumulation_dtype = c.accumulation_dtype;
  options.persistence_threshold = 0;
  ThreadCommunicator alone(std::make_shared<ThreadGroup>(1), 0);
  StepStreams streams(c.device, /*overlaps=*/c.device.is_cuda());
  FlatParameters parameters(table, options, streams, alone, alone);
  parameters.load([&](int parameter, int64_t begin, at::Tensor out) {
    out.copy_(values[static_cast<size_t>(parameter)].reshape({-1}).narrow(0, begin, out.numel()));
  });

  const layers::GemmOptions gemm{.sums_bias = true, .writes_gradient = c.writes};
  const auto linear = [&](const at::Tensor& x, const at::Tensor& w, const at::Tensor& b) {
    return layers::fused_linear(x, w, b, gemm);
  };
  const auto matmul = [&](const at::Tensor& x, const at::Tensor& w) { return layers::fused_matmul(x, w, gemm); };
  const CountedCopies copies;
  for (int64_t i = 0; i < c.micro_batches; ++i) {
    parameters.begin_accumulation_step(/*is_last=*/i + 1 == c.micro_batches);
    std::vector<at::Tensor> all;
    std::vector<std::shared_ptr<units::CallInBackward>> calls;
    for (int unit : {0, 1}) {
      auto views = parameters.acquire(unit, UnitCall::kTraining).parameters;
      calls.push_back(
          std::make_shared<units::CallInBackward>(units::CallInBackward{.parameters = &parameters, .unit = unit}));
      units::attach_gather_node(views, calls.back());
      all.insert(all.end(), views.begin(), views.end());
    }
    const at::Tensor loss = block_loss(block_input(i, c.dtype).to(c.device), all, linear, matmul);
    for (int unit : {1, 0}) parameters.release(unit);
    for (const auto& call : calls) call->prepare();
    loss.backward();
    parameters.end_accumulation_step();
  }
  parameters.reduce_gradients();
  StepGradients out;
  out.num_copied = copies.count();
  for (const auto& value : values) out.of_parameters.push_back(at::zeros({value.numel()}, at::kDouble));
  for (const auto& [span, arrays] : parameters.state()) {
    for (const auto& piece : pieces_in(parameters.groups()[static_cast<size_t>(span.flat_group)], span.range)) {
      out.of_parameters[static_cast<size_t>(piece.parameter)]
          .narrow(0, piece.begin, piece.count)
          .copy_(arrays.gradient.narrow(0, piece.offset, piece.count));
    }
  }
  return out;
}

}  // namespace dslaunch::test
