// The CUDA module's part of lib/runtime/engine: LibTorch's CUDA graphs, which know of its allocator and its generators.
// Part of the module, never of dsworker itself.
#include "runtime/engine/device_graph.hpp"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <optional>

namespace dslaunch::runtime {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device) : device_(device), pool_(at::cuda::graph_pool_handle()) {}

  void record(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    // What steps without a graph have left would only lie beside the graph's own memory.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const auto stream = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_.index());
    const c10::cuda::CUDAStreamGuard on_stream(stream);
    auto generator = at::cuda::detail::getDefaultCUDAGenerator(device_.index());
    const at::Tensor random = generator.get_state();
    graph_.emplace(/*keep_graph=*/true);  // instantiated by a call of its own
    // Of this thread alone: others may ask for events and memory meanwhile.
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    bool is_ended = false;
    try {
      work();
      graph_->capture_end();
      is_ended = true;
      graph_->instantiate();
      // The generator's seed and offset lie on the device, and capture_begin() has set them on this stream: a replay on
      // another one sets them anew and must come after that.
      stream.synchronize();
    } catch (...) {
      if (!is_ended) break_off(stream);
      graph_.reset();
      if (!is_ended) c10::cuda::CUDACachingAllocator::releasePool(device_.index(), pool_);
      start_anew(generator, random);
      throw;
    }
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_->replay();
  }

 private:
  // LibTorch leaves a recording that failed as it is.
  void break_off(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (::cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t unfinished = nullptr;
      ::cudaStreamEndCapture(stream, &unfinished);
      if (unfinished != nullptr) ::cudaGraphDestroy(unfinished);
    }
    ::cudaGetLastError();  // else the next launch would be told of it
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool_);
    } catch (const std::exception&) {
      // It has ended already.
    }
  }

  // The generator's old state believes itself in a recording.
  void start_anew(at::Generator& generator, const at::Tensor& random) const {
    generator.graphsafe_set_state(at::cuda::detail::createCUDAGenerator(device_.index()));
    generator.set_state(random);
  }

  const c10::Device device_;
  const c10::MempoolId_t pool_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

constexpr GraphFunctions kFunctions{
    .make = [](c10::Device device) -> std::unique_ptr<DeviceGraph> { return std::make_unique<CudaGraph>(device); }};

}  // namespace
}  // namespace dslaunch::runtime

extern "C" __attribute__((visibility("default"))) const dslaunch::runtime::GraphFunctions*
dslaunch_cuda_graph_functions() {
  return &dslaunch::runtime::kFunctions;
}
