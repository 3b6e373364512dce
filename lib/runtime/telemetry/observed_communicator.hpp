// Wraps a communicator and reports every collective to observers: its kind, its size, and when it ran. Only created
// when there are observers; without it collectives have no overhead.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "runtime/telemetry/time_mark.hpp"

namespace dslaunch::runtime {

// DeepSpeed's names: all_reduce, reduce_scatter_tensor, all_gather_into_tensor, all_to_all_single, broadcast, send,
// recv, barrier; and PyTorch's for an exchange of several messages, batch_isend_irecv.
struct CollectiveRecord {
  const char* op = "";
  size_t bytes = 0;  // one rank's part for all-gather and reduce-scatter, otherwise the whole buffer; of an exchange,
                     // what leaves or what arrives, whichever is more
  std::string group;
  int group_size = 1;
  TimeMark begin, end;  // in the stream on which it was issued
};

class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;
  // Just issued; called on the thread that issued it. Two communicators may call from two threads.
  virtual void issued(const std::shared_ptr<const CollectiveRecord>& record) = 0;
};

class ObservedCommunicator final : public comm::Communicator {
 public:
  // `inner` and the observers must outlive this object. Same thread rules as `inner`.
  ObservedCommunicator(comm::Communicator& inner, std::string group, at::Device device,
                       std::vector<CollectiveObserver*> observers)
      : inner_(inner), group_(std::move(group)), device_(device), observers_(std::move(observers)) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }

  void all_reduce(comm::Buffer buffer, comm::ReduceOp op) override;
  void reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) override;
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override;
  void all_to_all(comm::ConstBuffer in, comm::Buffer out) override;
  void broadcast(comm::Buffer buffer, int root) override;
  void exchange(std::span<const comm::Outgoing> sends, std::span<const comm::Incoming> receives) override;
  void barrier() override;
  void wait_for_completion() override { inner_.wait_for_completion(); }
  void wait_until(const std::function<bool()>& is_reached) override { inner_.wait_until(is_reached); }
  void abort(const std::string& reason) override { inner_.abort(reason); }

 private:
  template <class Issue>
  void observe(const char* op, size_t bytes, Issue&& issue);

  comm::Communicator& inner_;
  const std::string group_;
  const at::Device device_;
  const std::vector<CollectiveObserver*> observers_;
};

}  // namespace dslaunch::runtime
