// Ranks as processes, each on a GPU; with SHARE_GPUS set they take turns on those that there are
// (tests/gpu/share_gpus.py says how NCCL is brought to it).
#pragma once
#include <cuda_runtime_api.h>

#include "unit/comm/communicator_contract.hpp"

namespace dslaunch::test {

class DeviceMemory final : public Memory {
 public:
  void* allocate(size_t bytes) override {
    void* data = nullptr;
    check(::cudaMalloc(&data, bytes));
    return data;
  }
  void release(void* data) override { ::cudaFree(data); }
  void write(void* to, const void* from, size_t bytes) override {
    check(::cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
  }
  void read(void* to, const void* from, size_t bytes) override {
    check(::cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
  }

 private:
  static void check(cudaError_t outcome) {
    if (outcome != cudaSuccess) throw std::runtime_error(::cudaGetErrorString(outcome));
  }
};

// Asked in a child: a process that has used CUDA cannot fork ranks that use it.
inline int num_gpus() {
  pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    ::_exit(::cudaGetDeviceCount(&count) == cudaSuccess ? count : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

inline bool shares_gpus() {
  return std::getenv("SHARE_GPUS") != nullptr;
}

inline bool enough_gpus(int needed) {
  static const int count = num_gpus();
  if (count >= needed || (count > 0 && shares_gpus())) return true;
  WARN("skipped: needs " << needed << " GPUs, found " << count);
  return false;
}

inline std::unique_ptr<Communicator> open_on_device(const RankContext& context, const std::string& name = "world",
                                                    std::chrono::milliseconds timeout = std::chrono::seconds(50),
                                                    bool uses_peer_memory = false) {
  int device = context.rank;
  if (shares_gpus()) {
    int count = 1;
    ::cudaGetDeviceCount(&count);
    device %= count;
    ::setenv("NCCL_HOSTID", fmt::format("rank{}", context.rank).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
  if (::cudaSetDevice(device) != cudaSuccess) throw std::runtime_error("cudaSetDevice failed");
  comm::CommunicatorOptions options;
  options.name = name;
  options.rank = context.rank;
  options.size = context.size;
  options.device = device;
  options.timeout = timeout;
  options.uses_peer_memory = uses_peer_memory;
  return comm::make_communicator(options, context.store);
}

}  // namespace dslaunch::test
