#include "runtime/telemetry/observed_communicator.hpp"

#include <algorithm>

#include "comm/collective.hpp"

namespace dslaunch::runtime {

template <class Issue>
void ObservedCommunicator::observe(const char* op, size_t bytes, Issue&& issue) {
  auto record = std::make_shared<CollectiveRecord>();
  record->op = op;
  record->bytes = bytes;
  record->group = group_;
  record->group_size = inner_.size();
  record->begin = mark_time(device_);
  issue();
  record->end = mark_time(device_);
  for (auto* observer : observers_) observer->issued(record);
}

void ObservedCommunicator::all_reduce(comm::Buffer buffer, comm::ReduceOp op) {
  observe("all_reduce", comm::num_bytes_in(buffer), [&] { inner_.all_reduce(buffer, op); });
}

void ObservedCommunicator::reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) {
  observe("reduce_scatter_tensor", comm::num_bytes_in(out), [&] { inner_.reduce_scatter(in, out, op); });
}

void ObservedCommunicator::all_gather(comm::ConstBuffer in, comm::Buffer out) {
  observe("all_gather_into_tensor", comm::num_bytes_in(in), [&] { inner_.all_gather(in, out); });
}

void ObservedCommunicator::all_to_all(comm::ConstBuffer in, comm::Buffer out) {
  observe("all_to_all_single", comm::num_bytes_in(in), [&] { inner_.all_to_all(in, out); });
}

void ObservedCommunicator::broadcast(comm::Buffer buffer, int root) {
  observe("broadcast", comm::num_bytes_in(buffer), [&] { inner_.broadcast(buffer, root); });
}

void ObservedCommunicator::exchange(std::span<const comm::Outgoing> sends, std::span<const comm::Incoming> receives) {
  size_t sent = 0, received = 0;
  for (const auto& part : sends) sent += comm::num_bytes_in(part.buffer);
  for (const auto& part : receives) received += comm::num_bytes_in(part.buffer);
  const bool is_single = sends.size() + receives.size() == 1;
  const char* op = !is_single ? "batch_isend_irecv" : sends.empty() ? "recv" : "send";
  observe(op, std::max(sent, received), [&] { inner_.exchange(sends, receives); });
}

void ObservedCommunicator::barrier() {
  observe("barrier", 0, [&] { inner_.barrier(); });
}

}  // namespace dslaunch::runtime
