// Selects the operators of a model that our kernels compute, and the type in which the model runs; what these kernels
// use of the program. Plain data.
#pragma once
#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>

#include "config/job_config.hpp"
#include "runtime/device/gemm.hpp"

namespace dslaunch::runtime::generated_kernels {
class KernelLibrary;
}
namespace dslaunch::runtime::model::fusion {
class ProgramLog;
}

namespace dslaunch::runtime::model {

struct GraphPassOptions {
  config::Kernels kernels;
  // Of parameters and activations. A half-precision type: traces that were exported in another follow it.
  at::ScalarType compute_dtype = at::kFloat;
  std::optional<config::Fp8Recipe> fp8 = {};  // of wide linear layers, in a run in bf16
  bool keeps_fp8_weights = true;              // layers::GemmOptions
  bool regions_on_cpu = false;                // for tests: fused regions on CPUs too, by their reference
  // With kernels.chunked_cross_entropy. The device of the run is not known to the graphs yet; off on CPUs, where the
  // same numbers take as long and round otherwise.
  bool chunks_cross_entropy = false;
  bool recomputes_outputs = false;  // of fused regions: activation_checkpointing.selective
  // Of fused regions; null only for a model that does not run on a GPU.
  std::shared_ptr<generated_kernels::KernelLibrary> kernel_library = {};
  // Of GEMMs whose backward is ours; null: PyTorch's algorithms.
  device::GemmCachePtr gemms = {};
  std::shared_ptr<fusion::ProgramLog> programs = {};  // what became of fused regions; null: problems are warnings
};

}  // namespace dslaunch::runtime::model
