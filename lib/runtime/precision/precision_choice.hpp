// The type in which each tensor of the model is computed (docs/precision.md). Plain values; any thread.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime::precision {

struct PrecisionChoice {
  at::ScalarType compute_dtype = at::kFloat;  // floating inputs are cast to it
  bool keep_model_dtypes = true;              // fp32 runs leave a model's half-precision parameters as they are
  bool keep_batch_norm = true;                // if that is false: batch norms still keep the types that the model has
};
// "auto": bf16 on GPUs that have it, else fp32.
PrecisionChoice choose_precision(config::Precision precision, bool keep_batch_norm, at::Device device);

at::ScalarType to_torch(config::ScalarType type);
std::optional<at::ScalarType> to_torch(std::optional<config::ScalarType> type);

// Maps a tensor's name and its type in the model to the type that it has in the computation.
class ModelDtypes {
 public:
  ModelDtypes() = default;  // all types stay as they are
  // `buffers`: the names of all buffers of the model. A module with the buffers running_mean and running_var is a batch
  // norm: 16 bits are too few to average in, and its kernels accept 16-bit inputs with fp32 parameters.
  ModelDtypes(PrecisionChoice choice, const std::vector<std::string>& buffers);

  at::ScalarType operator()(const std::string& name, at::ScalarType own) const;

 private:
  PrecisionChoice choice_;
  std::set<std::string> kept_modules_;  // paths
};

// "tf32" of the config; empty leaves PyTorch's default. On the host it has no effect, and a message says so.
void set_tf32(std::optional<bool> tf32, at::Device device);

}  // namespace dslaunch::runtime::precision
