// Sums and gathers of small arrays over the GPUs of one host, through memory that each of them has mapped: in few
// microseconds, where NCCL takes tens. No multicast. See peer_all_reduce.cu.
//
// All ranks launch the same sequence of these kernels, each rank's in the order of one stream (or of events), also out
// of CUDA graphs: what a launch needs to know of the one before lies on the device.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

constexpr int kMaxPeers = 8;
// Of an array: beyond the first it is divided among the ranks, which exchange their sums; a gather does not take more.
constexpr size_t kMaxOneShotBytes = 256 << 10;
constexpr size_t kMaxTwoShotBytes = 2 << 20;

struct PeerGroup {
  void* memory[kMaxPeers] = {};  // by rank: peer_memory_bytes(), zeros at first; this rank's own among them
  int rank = 0, size = 1;
  uint32_t* progress = nullptr;       // two numbers on this rank's device, zeros at first
  const uint32_t* aborted = nullptr;  // on the host, mapped: not 0 ends kernels that wait; what they write is not valid
};

size_t peer_memory_bytes(int size);

// out[i] = the sum of in[i] over the ranks, in their order, in fp32, rounded once: the same bits on all ranks. At most
// kMaxTwoShotBytes, at least one element. `in` may be `out`.
cudaError_t launch_peer_all_reduce(const PeerGroup& group, const void* in, void* out, size_t count, ElementType type,
                                   cudaStream_t stream);
// out[rank * bytes + i] = in[i] of the rank. At least one byte, at most kMaxOneShotBytes.
cudaError_t launch_peer_all_gather(const PeerGroup& group, const void* in, void* out, size_t bytes,
                                   cudaStream_t stream);

}  // namespace dslaunch::kernels
