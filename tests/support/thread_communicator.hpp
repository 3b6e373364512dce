// A communicator whose ranks are threads of this process: collectives on host memory for tests of what stands above.
#pragma once
#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "comm/communicator.hpp"

namespace dslaunch::test {

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks) : size(ranks), meet(ranks), slots(ranks) {}
  const int size;
  std::barrier<> meet;
  std::vector<const void*> slots;  // what each rank brings to the collective at hand
};

class ThreadCommunicator : public comm::Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  void all_reduce(comm::Buffer buffer, comm::ReduceOp op) override {
    if (buffer.dtype == comm::DType::kInt64 && op == comm::ReduceOp::kMax) {
      auto most = largest_of_all(buffer.data, buffer.count);
      copy(buffer.data, most.data(), most.size() * sizeof(int64_t));
      group_->meet.arrive_and_wait();
      return;
    }
    auto sum = sum_of_all(buffer, op, 0, buffer.count);
    copy(buffer.data, sum.data(), sum.size() * sizeof(float));
    group_->meet.arrive_and_wait();
  }
  void reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) override {
    auto sum = sum_of_all(in, op, rank_ * out.count, out.count);
    copy(out.data, sum.data(), sum.size() * sizeof(float));
    group_->meet.arrive_and_wait();
  }
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    std::vector<char> own(static_cast<const char*>(in.data),
                          static_cast<const char*>(in.data) + bytes(in.count, in.dtype));
    group_->slots[rank_] = own.data();
    group_->meet.arrive_and_wait();
    for (int r = 0; r < size(); ++r) copy(static_cast<char*>(out.data) + r * own.size(), group_->slots[r], own.size());
    group_->meet.arrive_and_wait();
  }
  void all_to_all(comm::ConstBuffer in, comm::Buffer out) override {
    const size_t slice = bytes(in.count, in.dtype) / static_cast<size_t>(size());
    group_->slots[rank_] = in.data;
    group_->meet.arrive_and_wait();
    for (int r = 0; r < size(); ++r) {
      const char* theirs = static_cast<const char*>(group_->slots[r]) + rank_ * slice;
      copy(static_cast<char*>(out.data) + r * slice, theirs, slice);
    }
    group_->meet.arrive_and_wait();
  }
  void broadcast(comm::Buffer buffer, int root) override {
    group_->slots[rank_] = buffer.data;
    group_->meet.arrive_and_wait();
    if (rank_ != root) copy(buffer.data, group_->slots[root], bytes(buffer.count, buffer.dtype));
    group_->meet.arrive_and_wait();
  }
  void send(comm::ConstBuffer, int) override { throw std::logic_error("not used here"); }
  void receive(comm::Buffer, int) override { throw std::logic_error("not used here"); }
  void barrier() override { group_->meet.arrive_and_wait(); }
  void wait_for_completion() override {}
  void wait_until(const std::function<bool()>&) override { throw std::logic_error("not used here"); }
  void abort(const std::string&) override {}

 private:
  static size_t bytes(size_t count, comm::DType dtype) { return count * comm::size_of(dtype); }

  // A buffer of nothing may be nowhere, which memcpy does not allow.
  static void copy(void* to, const void* from, size_t num_bytes) {
    if (num_bytes > 0) std::memcpy(to, from, num_bytes);
  }

  // Of the elements from `begin` on. Everybody leaves only after all have read (the callers' second meeting).
  std::vector<float> sum_of_all(comm::ConstBuffer own, comm::ReduceOp op, size_t begin, size_t count) {
    if (own.dtype != comm::DType::kFloat32 || op != comm::ReduceOp::kSum) throw std::logic_error("sums of fp32 only");
    group_->slots[rank_] = own.data;
    group_->meet.arrive_and_wait();
    std::vector<float> sum(count, 0.0F);
    for (int r = 0; r < size(); ++r) {
      const float* theirs = static_cast<const float*>(group_->slots[r]) + begin;
      for (size_t i = 0; i < count; ++i) sum[i] += theirs[i];
    }
    group_->meet.arrive_and_wait();
    return sum;
  }

  std::vector<int64_t> largest_of_all(const void* data, size_t count) {
    group_->slots[rank_] = data;
    group_->meet.arrive_and_wait();
    std::vector<int64_t> most(static_cast<const int64_t*>(data), static_cast<const int64_t*>(data) + count);
    for (int r = 0; r < size(); ++r) {
      const auto* theirs = static_cast<const int64_t*>(group_->slots[r]);
      for (size_t i = 0; i < count; ++i) most[i] = std::max(most[i], theirs[i]);
    }
    group_->meet.arrive_and_wait();
    return most;
  }

  std::shared_ptr<ThreadGroup> group_;
  int rank_;
};

}  // namespace dslaunch::test
