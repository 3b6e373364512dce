#include "runtime/engine/step/backward.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <new>
#include <string>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/resource_error.hpp"
#include "runtime/model/script_error.hpp"

namespace dslaunch::runtime::engine::step {

void run_backward(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients) {
  try {
    torch::autograd::backward(outputs, gradients);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const auto cause = model::cause_of(error);
    throw_if_resource_failed(cause, "backward");
    throw UserError(ExitCode::kBadInput, fmt::format("backward of the model failed: {}", cause));
  }
}

}  // namespace dslaunch::runtime::engine::step
