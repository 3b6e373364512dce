// Small sums and gathers over the GPUs of one host, through memory of each that all others have mapped
// (kernels/peer_all_reduce.h). The thread that issues collectives; abort() from any thread.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "kernels/peer_all_reduce.h"

namespace dslaunch::comm {

class PeerMemory {
 public:
  PeerMemory();  // of the current device
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // With all members, which all succeed or all fail: then the clause says why. Once.
  Result<> connect(const CommunicatorOptions& options, const std::string& key_prefix, rendezvous::Store& store,
                   Deadline deadline);

  // After connect(). What they do not take goes another way, on all members alike.
  bool takes_sum(const ConstBuffer& buffer, ReduceOp op) const;
  bool takes_gather(const ConstBuffer& own) const;
  // Those that a graph has captured are replayed in order with all others.
  cudaError_t all_reduce(const Buffer& buffer, cudaStream_t stream);
  cudaError_t all_gather(const ConstBuffer& own, const Buffer& out, cudaStream_t stream);

  // Kernels that wait for other members end soon, also all later ones; what they write is not valid.
  void abort() { aborted_->store(1); }

 private:
  std::string offer() const;
  Result<void*> open(const std::string& offer);
  template <class Launch>
  cudaError_t in_order(cudaStream_t stream, Launch launch);

  kernels::PeerGroup group_;
  std::atomic<uint32_t>* aborted_ = nullptr;  // on the host; the device reads it
  void* own_ = nullptr;
  std::vector<void*> opened_;  // of other processes
  // Of the last launch.
  cudaEvent_t event_ = nullptr;
  cudaStream_t stream_ = nullptr;
  unsigned long long capture_ = 0;  // 0: it was not captured
  bool has_launched_ = false;
};

}  // namespace dslaunch::comm
