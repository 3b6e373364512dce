#include "runtime/precision/precision_choice.hpp"

#include <ATen/Context.h>

#include <algorithm>

#include "base/log.hpp"

namespace dslaunch::runtime::precision {
namespace {

// "encoder.norm.weight" -> "encoder.norm"; "weight" -> "".
std::string module_of(const std::string& name) {
  const auto dot = name.rfind('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

std::string member(const std::string& module, const char* name) {
  return module.empty() ? name : module + "." + name;
}

}  // namespace

PrecisionChoice choose_precision(config::Precision precision, bool keep_batch_norm, at::Device device) {
  if (precision == config::Precision::kAuto) {
    // All GPUs that this build has code for (sm_80 and later) compute in bf16.
    precision = device.is_cuda() ? config::Precision::kBf16 : config::Precision::kFp32;
  }
  if (precision == config::Precision::kBf16) return {at::kBFloat16, false, keep_batch_norm};
  if (precision == config::Precision::kFp16) return {at::kHalf, false, keep_batch_norm};
  return {at::kFloat, true, true};
}

at::ScalarType to_torch(config::ScalarType type) {
  switch (type) {
    case config::ScalarType::kFp32:
      return at::kFloat;
    case config::ScalarType::kBf16:
      return at::kBFloat16;
    case config::ScalarType::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

std::optional<at::ScalarType> to_torch(std::optional<config::ScalarType> type) {
  return type ? std::optional(to_torch(*type)) : std::nullopt;
}

ModelDtypes::ModelDtypes(PrecisionChoice choice, const std::vector<std::string>& buffers) : choice_(choice) {
  if (!choice.keep_batch_norm) return;
  for (const auto& name : buffers) {
    const std::string module = module_of(name);
    if (name != member(module, "running_mean")) continue;
    if (std::find(buffers.begin(), buffers.end(), member(module, "running_var")) != buffers.end())
      kept_modules_.insert(module);
  }
}

at::ScalarType ModelDtypes::operator()(const std::string& name, at::ScalarType own) const {
  const bool stays = choice_.keep_model_dtypes || !at::isFloatingType(own) || kept_modules_.count(module_of(name)) > 0;
  return stays ? own : choice_.compute_dtype;
}

void set_tf32(std::optional<bool> tf32, at::Device device) {
  if (!tf32) return;
  if (device.is_cpu()) {
    if (*tf32) log::info("'tf32' has no effect on CPU ranks: they compute in full fp32");
    return;
  }
  at::globalContext().setAllowTF32CuBLAS(*tf32);
  at::globalContext().setAllowTF32CuDNN(*tf32);
}

}  // namespace dslaunch::runtime::precision
