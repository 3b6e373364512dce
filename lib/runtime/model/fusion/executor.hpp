// How a region runs: by generated kernels on GPUs, by PyTorch's operators elsewhere.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/fusion/codegen.hpp"
#include "runtime/model/fusion/ir.hpp"
#include "runtime/model/fusion/services.hpp"

namespace dslaunch::runtime::model::fusion {

// The function table that the CUDA module provides for generated kernels.
struct FusionFunctions {
  // "sm_90", of the device of a tensor.
  std::string (*architecture)(const at::Tensor& tensor);
  // Loads a cubin for good and returns the kernel of that name in it; for the tensor's device.
  void* (*load)(const std::string& cubin, const char* kernel, const at::Tensor& tensor);
  // `arguments`: the kernel's only parameter. On the current stream of the tensor's device. `overlaps`:
  // device::overlaps_launches().
  void (*launch)(void* kernel, uint32_t blocks, uint32_t threads, const void* arguments, const at::Tensor& tensor,
                 bool overlaps);
  // sums[columns] = the sums of the columns of partials[number][columns], fp32.
  void (*column_totals)(const at::Tensor& partials, const at::Tensor& sums);
};

// A launch as plain values, without pointers: what a layout decides.
struct Launch {
  KernelLayout layout;
  std::vector<std::vector<bool>> varies;  // by input, over the merged dims
  int64_t rows = 1;
  std::vector<int64_t> sizes;                 // of the merged dims
  std::vector<std::vector<int64_t>> strides;  // by input, then by output; of the merged dims, then of the columns
};

// `leading`: sizes of the rows' dims. Inputs broadcast to [leading..., width]; outputs have these sizes, or [width] and
// are summed over the rows. Orders the dims as they lie in memory and merges neighbours. Pure: reads no values.
Launch plan_launch(const Region& region, const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
                   const std::vector<at::Tensor>& outputs);

// The kernels of one region: one for each way in which its tensors lie in memory, made at its first launch.
class FusionExecutor {
 public:
  // `services`: null: it never runs.
  FusionExecutor(Region region, FusionServicesPtr services)
      : region_(std::move(region)), services_(std::move(services)) {}
  const Region& region() const { return region_; }

  // On the GPU of the tensors; any thread. False: no kernel could be made for them, which the log of the services says,
  // and nothing is written.
  bool run(const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
           const std::vector<at::Tensor>& outputs);

  // Begins to compile what run() will need for tensors that lie as these, which need no data; `like`: one on the GPU.
  void prepare(const std::vector<int64_t>& leading, const std::vector<at::Tensor>& inputs,
               const std::vector<at::Tensor>& outputs, const at::Tensor& like);

 private:
  Result<KernelSource> source_for(const Launch& launch) const;

  struct Loaded {
    KernelSource source;
    void* kernel = nullptr;
  };
  const Loaded* loaded(const Launch& launch, const at::Tensor& like);

  generated_kernels::KernelLibrary& library() const;

  const Region region_;
  const FusionServicesPtr services_;
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Loaded>> loaded_;  // by layout and device; null: there is none
};

// Runs a region with PyTorch's operators, one by one: on CPUs, as the reference of the generated kernels, and for
// gradients of gradients, since autograd follows it.
// `inputs`: of the region's dtypes; with `leading` they broadcast to [leading..., width]. Results: [leading..., width],
// or [width] where the rows are summed. Any thread.
std::vector<at::Tensor> run_reference(const Region& region, const std::vector<at::Tensor>& inputs,
                                      at::IntArrayRef leading);

}  // namespace dslaunch::runtime::model::fusion
