// From forward's result and the labels to a scalar loss: the model's own, a named function, or a TorchScript file.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/model/interface/model.hpp"

namespace dslaunch::runtime::engine::step {

class Loss {
 public:
  virtual ~Loss() = default;
  // True: forward takes only the inputs, this loss takes the labels. False: forward takes both and returns the loss.
  virtual bool takes_labels() const = 0;
  // See ModelFacts::capturable.
  virtual Result<> check_capturable() const { return {}; }
  // Converts labels to the form that forward, or the loss, takes.
  virtual std::vector<at::Tensor> usable(const std::vector<at::Tensor>& labels) const { return labels; }
  // One line on the output that it takes, where forward returned several tensors; else empty.
  virtual std::string describe_choice(const model::ForwardResult&, const std::vector<at::Tensor>& /*labels*/) const {
    return {};
  }
  // Returns a 0-dim floating-point tensor. Throws UserError(65) naming the shapes when outputs and labels do not match.
  virtual at::Tensor operator()(const model::ForwardResult& result, const std::vector<at::Tensor>& labels) = 0;
};

// `name`: "" (forward returns the loss), "cross_entropy", "mse" or the path of a TorchScript file called as
// loss(outputs, labels). The loss is a mean; with LossAverage::kTokens it is the sum over the labels that count: the
// mean that forward or a file returns is then multiplied by their number. `forward_shifts`: forward shifts the labels,
// so that its loss has no first label of a sample. `outputs`: the config's (output_choice.hpp).
std::unique_ptr<Loss> make_loss(const std::string& name, at::Device device,
                                config::LossAverage average = config::LossAverage::kMicroBatches,
                                const config::Kernels& kernels = {}, bool forward_shifts = false,
                                const std::string& outputs = "");

}  // namespace dslaunch::runtime::engine::step
