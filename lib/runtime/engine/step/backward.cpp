#include "runtime/engine/step/backward.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <new>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"

namespace dslaunch::runtime::engine::step {

namespace {

template <typename Run>
void report_failures(const Run& run) {
  try {
    run();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const auto cause = model::file::cause_of(error);
    throw_if_resource_failed(cause, "backward");
    throw UserError(ExitCode::kBadInput, fmt::format("backward of the model failed: {}", cause));
  }
}

}  // namespace

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients) {
  report_failures([&] { torch::autograd::backward(outputs, gradients); });
}

void run_weight_gradients(std::vector<DeferredGradients::Work> work) {
  const at::NoGradGuard no_grad;
  for (auto& part : work) {
    report_failures(part);
    part = nullptr;
  }
}

}  // namespace dslaunch::runtime::engine::step
