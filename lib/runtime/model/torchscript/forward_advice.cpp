#include "runtime/model/torchscript/forward_advice.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "base/format.hpp"

namespace dslaunch::runtime::model::torchscript {
namespace {

// Whether PyTorch's message names an integer or boolean type: "expected scalar type Long but found Float", "Input type
// (unsigned char) and bias type (float)".
bool names_integers(std::string_view cause) {
  static constexpr std::array<std::string_view, 11> kTypes = {"Byte", "Char",  "Short", "Int",  "Long", "Bool",
                                                              "char", "short", "int",   "long", "bool"};
  const auto is_of_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  for (auto at = cause.begin(); at != cause.end();) {
    const auto begin = std::find_if(at, cause.end(), is_of_word);
    at = std::find_if_not(begin, cause.end(), is_of_word);
    if (std::find(kTypes.begin(), kTypes.end(), std::string_view(begin, at)) != kTypes.end()) return true;
  }
  return false;
}

// Advice for mismatched dtypes.
std::string type_advice(const std::vector<at::Tensor>& inputs, bool is_half_file, const char* elsewhere) {
  const bool are_whole =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& input) { return input.scalar_type() == at::kFloat; });
  if (is_half_file && are_whole) {
    return ". The file has parameters in 16 bits, and inputs are cast only in a run in 16 bits: set fp16.enabled or "
           "bf16.enabled, or export the model with .float()";
  }
  return fmt::format(
      ". A trace keeps the dtypes of its export, a script those that it names (torch.zeros without a dtype creates "
      "fp32): export it in the dtype of this run, or {}",
      elsewhere);
}

}  // namespace

std::string describe_size_mismatch(const std::vector<at::Tensor>& inputs, const std::vector<RecordedInput>& recorded) {
  for (size_t i = 0; i < std::min(inputs.size(), recorded.size()); ++i) {
    if (recorded[i].name.empty() || inputs[i].dim() == 0) continue;
    const auto sample = inputs[i].sizes().slice(1);
    if (sample == at::IntArrayRef(recorded[i].shape)) continue;
    return fmt::format("argument '{}' has samples of the size [{}], and the model file records [{}]", recorded[i].name,
                       fmt::join(sample, ", "), fmt::join(recorded[i].shape, ", "));
  }
  return {};
}

std::string forward_advice(const std::string& cause, const std::vector<at::Tensor>& inputs, bool is_half_file,
                           at::DeviceType device) {
  const auto contains = [&](const char* words) { return cause.find(words) != std::string::npos; };
  const bool is_autocast = at::autocast::is_autocast_enabled(device);
  const char* elsewhere = is_autocast ? "train it in fp32" : "train it in fp32 or with torch_autocast";
  if (contains("not implemented for 'Half'") || contains("not implemented for 'BFloat16'") ||
      contains("Low precision dtypes")) {
    return fmt::format(". PyTorch does not have this operator in 16 bits on this device: {}", elsewhere);
  }
  if (contains("forward() Expected a value of type")) {
    return " The data's arrays are passed one by one, as tensors: wrap the model in a module whose forward accepts "
           "tensors";
  }
  if (contains("index out of range in self")) {
    return ". An index must be a row of its table: does the model have as many ids, or positions, as the data uses?";
  }
  if (contains("Parametrization is not working with scripting")) {
    return " PyTorch cannot script modules of torch.nn.utils.parametrizations: trace the model";
  }
  if (contains("does not require grad and does not have a grad_fn") && !at::GradMode::is_enabled()) {
    return ". An evaluation computes without gradients: let forward compute gradients (torch.autograd.grad) only in "
           "training mode";
  }
  if (contains("arguments don't support automatic differentiation")) {
    return " A trace loses torch.no_grad(): script the model, or trace it in eval mode if that leaves this part out "
           "(spectral_norm then keeps its current vectors)";
  }
  if (contains("must match the size of tensor") || contains("must match the existing size") ||
      contains("must match except") || contains("is invalid for input of size") ||
      contains("to match target batch_size")) {
    return ". If this is a trace: sizes that Python read as numbers (len(x), int(x.shape[0])) are constants from its "
           "example inputs; trace with this run's micro batch and length, use x.shape[0] itself, or script the model";
  }
  const bool is_lstm = contains("primitive descriptor for the LSTM");  // oneDNN's message for mismatched dtypes
  if (is_lstm || contains("dtype") || contains("scalar type") || contains("Input type (")) {
    if (names_integers(cause)) {
      return ". Arrays of floats are cast to the dtype of the run, arrays of integers and booleans are not: save ids "
             "and class labels as int64, and numeric inputs (pixels) as float32, or call .float() in forward";
    }
    return type_advice(inputs, is_half_file, elsewhere);
  }
  return "";
}

}  // namespace dslaunch::runtime::model::torchscript
