// The CUDA part of lib/runtime/engine: LibTorch's CUDA graphs, which work with LibTorch's caching allocator and random
// number generators. Part of the CUDA module, never of dsworker itself.
#include "runtime/engine/step/device_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <optional>

#include "runtime/device/cuda/function_tables.hpp"
#include "runtime/device/cuda/generator_state.hpp"

namespace dslaunch::runtime::engine::step {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(c10::Device device, const CudaGraph* shares)
      : device_(device),
        pool_(shares != nullptr ? shares->pool_ : at::cuda::graph_pool_handle()),
        stream_(shares != nullptr ? shares->stream_
                                  : c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  void capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard guard(device_);
    // Memory cached by earlier steps without a graph would stay allocated beside the graph's own pool.
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    const auto& random = device::generator_state(device_);
    graph_.emplace(/*keep_graph=*/true);  // instantiated by a separate call
    // Thread-local capture: other threads may query events and allocate memory meanwhile.
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    bool is_ended = false;
    try {
      work();
      graph_->capture_end();
      is_ended = true;
      graph_->instantiate();
      // The generator's seed and offset are on the device, and capture_begin() has set them on this stream: a replay on
      // another stream sets them again and must run after that.
      stream_.synchronize();
    } catch (...) {
      if (!is_ended) abort_capture(stream_);
      graph_.reset();
      if (!is_ended) c10::cuda::CUDACachingAllocator::releasePool(device_.index(), pool_);
      // LibTorch's generator would still consider itself in a capture.
      random->capturing_ = false;
      random->offset_intragraph_ = 0;
      throw;
    }
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_->replay();
  }

 private:
  // LibTorch does not clean up after a failed capture.
  void abort_capture(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (::cudaStreamIsCapturing(stream, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
      cudaGraph_t unfinished = nullptr;
      ::cudaStreamEndCapture(stream, &unfinished);
      if (unfinished != nullptr) ::cudaGraphDestroy(unfinished);
    }
    ::cudaGetLastError();  // else the next kernel launch would report this error
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool_);
    } catch (const std::exception&) {
      // It has already ended.
    }
  }

  const c10::Device device_;
  const c10::MempoolId_t pool_;
  const c10::cuda::CUDAStream stream_;  // one for all that share memory: cuBLAS has 32 MiB of workspace for each stream
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace

const GraphFunctions kGraphFunctions{
    .make = [](c10::Device device, const DeviceGraph* shares) -> std::unique_ptr<DeviceGraph> {
      return std::make_unique<CudaGraph>(device, static_cast<const CudaGraph*>(shares));
    }};

}  // namespace dslaunch::runtime::engine::step
