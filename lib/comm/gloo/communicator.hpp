// Collectives over host memory. Gloo carries the messages (a full mesh of TCP connections, one thread of its own); this
// class determines the order of additions: every element is summed over the ranks 0, 1, 2, ... in float32 (int64 and
// uint8 in their own type) and rounded once. So a result has the same bits on all ranks and in every run, whether it
// came from all_reduce or from reduce_scatter and all_gather, and however the buffers were split.
#pragma once
#include <memory>
#include <vector>

#include "comm/abort_flag.hpp"
#include "comm/calls.hpp"
#include "comm/communicator.hpp"
#include "comm/gloo/full_mesh.hpp"

namespace dslaunch::comm {

struct Call;

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const CommunicatorOptions& options, rendezvous::Store& store);

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }

  void all_reduce(Buffer buffer, ReduceOp op) override;
  void reduce_scatter(ConstBuffer in, Buffer out, ReduceOp op) override;
  void all_gather(ConstBuffer in, Buffer out) override;
  void all_to_all(ConstBuffer in, Buffer out) override;
  void broadcast(Buffer buffer, int root) override;
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  void barrier() override;
  void wait_for_completion() override {}
  void wait_until(const std::function<bool()>& is_reached) override { abort_flag_->wait_until(is_reached, "wait"); }
  void abort(const std::string& reason) override { abort_flag_->trip(reason); }
  CallState calls() const override;

 private:
  template <class Body>
  void collective(const char* verb, const ConstBuffer& buffer, Body&& body);
  template <class Body>
  void run(const Call& call, Body&& body);
  void exchange_parts(const Call& call, const ConstBuffer& in, size_t stride_bytes, const Buffer& out);
  void all_reduce_small(const Call& call, const Buffer& buffer, ReduceOp op);

  const CommunicatorOptions options_;
  const std::vector<int> others_;  // the ranks of the other members
  const std::shared_ptr<AbortFlag> abort_flag_;
  std::unique_ptr<FullMesh> mesh_;

  HostCalls calls_;
  ExchangeCounter exchanges_;

  // Owned by the thread that issues collectives.
  std::vector<char> scratch_;  // reused between calls
};

}  // namespace dslaunch::comm
