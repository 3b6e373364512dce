// Collectives over device memory, by NCCL, enqueued on the calling thread's current stream of the device.
//
// The NCCL communicator is non-blocking: no NCCL call holds a thread for long, so set-up obeys its deadline and abort()
// can end it. A separate thread detects a collective that does not end within the timeout, and aborts it, whatever the
// issuing thread is stuck in. NCCL's behaviour is left to NCCL and its environment variables.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/deadline.hpp"
#include "comm/abort_flag.hpp"
#include "comm/collective_timeout.hpp"
#include "comm/communicator.hpp"
#include "comm/nccl/peer_memory.hpp"
#include "comm/nccl/stream_counters.hpp"

namespace dslaunch::comm {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const CommunicatorOptions& options, rendezvous::Store& store);
  ~NcclCommunicator() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void all_reduce(Buffer buffer, ReduceOp op) override;
  void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override;
  void all_gather(ConstBuffer in, Buffer out) override;
  void all_to_all(ConstBuffer in, Buffer out) override;
  void broadcast(Buffer buffer, int root) override;
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  void barrier() override;
  void wait_for_completion() override;
  void wait_until(const std::function<bool()>& is_reached) override;
  void abort(const std::string& reason) override { abort_flag_->trip(reason); }
  std::string small_sums() const override { return small_sums_; }
  CallState calls() const override;

 private:
  void set_up(rendezvous::Store& store, Deadline deadline);
  void connect_peers(const std::string& key_prefix, rendezvous::Store& store, Deadline deadline);
  template <class Enqueue>
  void enqueue(const char* verb, const ConstBuffer& buffer, Enqueue&& call);
  template <class Enqueue>
  StreamCounters::Mark issue(const std::string& what, Enqueue&& call);
  std::set<int> peers_without_connection(std::span<const Outgoing> sends, std::span<const Incoming> receives) const;
  void check(const std::string& what) const;
  void wait_until_issued(ncclResult_t result, const std::string& what, Deadline deadline);
  ncclResult_t asynchronous_state();
  void wait_for_stream(const std::string& what);
  void poll(const std::function<bool()>& is_reached, const std::string& what);
  void abort_in_background();
  void release();
  bool flush();
  void wait_for_peers();
  cudaStream_t stream() const;

  const CommunicatorOptions options_;
  const std::shared_ptr<AbortFlag> abort_flag_;

  // Guards handle_, which an abort clears. Held for the duration of one NCCL call.
  std::timed_mutex handle_mutex_;
  ncclComm_t handle_ = nullptr;
  std::thread aborting_;  // started under the flag's lock, joined after disarm()

  // Owned by the thread that issues collectives.
  cudaEvent_t event_ = nullptr;
  void* barrier_token_ = nullptr;      // one byte on the device
  void* greeting_ = nullptr;           // the same, received from every peer
  std::set<int> connected_;            // members that an exchange has been with
  std::unique_ptr<PeerMemory> peers_;  // null: all goes through NCCL. Set before an abort can happen
  bool are_connected_ = false;         // the peers
  std::string small_sums_;
  std::unique_ptr<StreamCounters> counters_;

  std::atomic<uint64_t> last_call_{0};  // incremented by the issuing thread only
  ExchangeCounter exchanges_;
  std::atomic<bool> host_waits_{false};                    // for enqueued work
  std::unique_ptr<CollectiveTimeout> collective_timeout_;  // reads the counters; trips the flag
};

}  // namespace dslaunch::comm
