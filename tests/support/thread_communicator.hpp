// A communicator whose ranks are threads of this process: collectives on host memory for tests of what stands above.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/half_float.hpp"
#include "comm/collective.hpp"
#include "comm/communicator.hpp"

namespace dslaunch::test {

// A barrier that ends for good when a rank gives up, so that a rank that fails does not leave the others waiting.
class RankBarrier {
 public:
  explicit RankBarrier(int ranks) : ranks_(ranks) {}
  void arrive_and_wait() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (!is_aborted_ && ++num_arrived_ == ranks_) {
      num_arrived_ = 0;
      round_ += 1;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || is_aborted_; });
    if (round_ == round) throw PeerError(-1, "this process", "a collective", "another rank has failed");
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }
  bool is_aborted() {
    const std::lock_guard lock(mutex_);
    return is_aborted_;
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_arrived_ = 0;
  int64_t round_ = 0;
  bool is_aborted_ = false;
};

// Messages between the ranks, as in NCCL and Gloo: an exchange ends when the other ends of all its messages have come.
class RankMessages {
 public:
  void exchange(int rank, std::span<const comm::Outgoing> sends, std::span<const comm::Incoming> receives) {
    std::unique_lock lock(mutex_);
    std::vector<Message> sent;
    for (const auto& [buffer, destination] : sends) sent.push_back({buffer});
    for (size_t i = 0; i < sends.size(); ++i) {
      if (sends[i].buffer.count > 0) waiting_[{rank, sends[i].destination}].push_back(&sent[i]);
    }
    changed_.notify_all();
    for (const auto& [buffer, source] : receives) {
      if (buffer.count > 0) receive(lock, waiting_[{source, rank}], buffer);
    }
    for (const Message& message : sent) wait(lock, [&] { return message.is_taken || message.buffer.count == 0; });
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }

 private:
  struct Message {
    comm::ConstBuffer buffer;
    bool is_taken = false;
  };

  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate&& is_reached) {
    changed_.wait(lock, [&] { return is_aborted_ || is_reached(); });
    if (is_aborted_) throw PeerError(-1, "this process", "an exchange", "another rank has failed");
  }
  void receive(std::unique_lock<std::mutex>& lock, std::deque<Message*>& from, comm::Buffer buffer) {
    wait(lock, [&] { return !from.empty(); });
    Message& message = *from.front();
    from.pop_front();
    if (message.buffer.count != buffer.count || message.buffer.dtype != buffer.dtype) {
      throw std::logic_error("a receive of " + std::to_string(buffer.count) + " elements meets a send of " +
                             std::to_string(message.buffer.count) + ", or of another type");
    }
    std::memcpy(buffer.data, message.buffer.data, buffer.count * comm::size_of(buffer.dtype));
    message.is_taken = true;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<Message*>> waiting_;  // by sender and receiver, in order
  bool is_aborted_ = false;
};

class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks) : size(ranks), meet(ranks), slots(ranks) {}
  void abort() {
    meet.abort();
    messages.abort();
  }

  const int size;
  RankBarrier meet;
  RankMessages messages;
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
    store(sum_of_all(buffer, op, 0, buffer.count), buffer);
    group_->meet.arrive_and_wait();
  }
  void reduce_scatter(comm::ConstBuffer in, comm::Buffer out, comm::ReduceOp op) override {
    store(sum_of_all(in, op, rank_ * out.count, out.count), out);
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
  void exchange(std::span<const comm::Outgoing> sends, std::span<const comm::Incoming> receives) override {
    comm::check_exchange(sends, receives, rank_, size());
    group_->messages.exchange(rank_, sends, receives);
  }
  void barrier() override { group_->meet.arrive_and_wait(); }
  void wait_for_completion() override {}
  void wait_until(const std::function<bool()>& is_reached) override {
    do {
      if (group_->meet.is_aborted()) throw PeerError(-1, "this process", "a wait", "another rank has failed");
    } while (!is_reached());
  }
  void abort(const std::string&) override { group_->abort(); }

 private:
  static size_t bytes(size_t count, comm::DType dtype) { return count * comm::size_of(dtype); }

  // A buffer of nothing may be nowhere, which memcpy does not allow.
  static void copy(void* to, const void* from, size_t num_bytes) {
    if (num_bytes > 0) std::memcpy(to, from, num_bytes);
  }

  static float from_float16(uint16_t bits) {
    const int exponent = (bits >> 10) & 31;
    const float fraction = static_cast<float>(bits & 1023);
    const float magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                            : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0F : 1.0F);
  }

  static float value_at(comm::ConstBuffer buffer, size_t i) {
    if (buffer.dtype == comm::DType::kFloat32) return static_cast<const float*>(buffer.data)[i];
    const uint16_t bits = static_cast<const uint16_t*>(buffer.data)[i];
    return buffer.dtype == comm::DType::kFloat16 ? from_float16(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
  }

  static void store(const std::vector<float>& values, comm::Buffer out) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (out.dtype == comm::DType::kFloat32) static_cast<float*>(out.data)[i] = values[i];
      if (out.dtype == comm::DType::kFloat16) static_cast<uint16_t*>(out.data)[i] = float16_bits(values[i]);
      if (out.dtype == comm::DType::kBFloat16) static_cast<uint16_t*>(out.data)[i] = bfloat16_bits(values[i]);
    }
  }

  // Of the elements from `begin` on, in fp32. Everybody leaves only after all have read (the callers' second meeting).
  std::vector<float> sum_of_all(comm::ConstBuffer own, comm::ReduceOp op, size_t begin, size_t count) {
    const bool is_float = own.dtype != comm::DType::kInt64 && own.dtype != comm::DType::kUInt8;
    if (!is_float || op != comm::ReduceOp::kSum) throw std::logic_error("sums of floating point only");
    group_->slots[rank_] = own.data;
    group_->meet.arrive_and_wait();
    std::vector<float> sum(count, 0.0F);
    for (int r = 0; r < size(); ++r) {
      const comm::ConstBuffer theirs{group_->slots[r], own.count, own.dtype};
      for (size_t i = 0; i < count; ++i) sum[i] += value_at(theirs, begin + i);
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
