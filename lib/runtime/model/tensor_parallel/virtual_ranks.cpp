#include "runtime/model/tensor_parallel/virtual_ranks.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/scope_exit.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

class VirtualRanks::Meeting {
 public:
  explicit Meeting(int ranks) : tensors_(static_cast<size_t>(ranks)) {}

  // What all ranks bring, by rank.
  std::vector<at::Tensor> meet(int rank, const at::Tensor& own) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_leaving_ || has_failed_; });  // the ranks of the last round
    tensors_[static_cast<size_t>(rank)] = own;
    if (++num_here_ == tensors_.size()) {
      is_leaving_ = true;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return is_leaving_ || has_failed_; });
    if (has_failed_) throw PeerError(-1, "this process", "a collective of virtual ranks", "another rank has failed");
    auto out = tensors_;
    if (--num_here_ == 0) {
      is_leaving_ = false;
      tensors_.assign(tensors_.size(), at::Tensor());
      changed_.notify_all();
    }
    return out;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> tensors_;  // by rank
  size_t num_here_ = 0;
  bool is_leaving_ = false, has_failed_ = false;
};

namespace {

class VirtualGroup final : public TensorGroup {
 public:
  VirtualGroup(int rank, int size, std::shared_ptr<VirtualRanks::Meeting> meeting)
      : TensorGroup(rank, size), meeting_(std::move(meeting)) {}

  at::Tensor all_reduce(const at::Tensor& tensor) override { return stacked(tensor).sum(0); }
  at::Tensor reduce_scatter(const at::Tensor& tensor, int64_t dim) override {
    const Range own = own_positions(tensor.size(dim), *this);
    return all_reduce(tensor).narrow(dim, own.begin, own.size()).contiguous();
  }
  at::Tensor stacked(const at::Tensor& tensor) override {
    return at::stack(meeting_->meet(rank(), tensor.detach().clone()));  // this rank may write to it before others read
  }

 private:
  const std::shared_ptr<VirtualRanks::Meeting> meeting_;
};

}  // namespace

VirtualRanks::VirtualRanks(int ranks) : meeting_(std::make_shared<Meeting>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) groups_.push_back(c10::make_intrusive<VirtualGroup>(rank, ranks, meeting_));
}

VirtualRanks::~VirtualRanks() = default;

void VirtualRanks::run(const std::function<void(int rank)>& body) {
  std::mutex mutex;
  std::exception_ptr failure;  // the first, which the other ranks' follow
  // Ranks divide the threads of this process, as those of a host do.
  const int all_threads = at::get_num_threads();
  at::set_num_threads(std::max(1, all_threads / static_cast<int>(groups_.size())));
  const ScopeExit restore([all_threads] { at::set_num_threads(all_threads); });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(groups_.size()); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        meeting_->fail();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace dslaunch::runtime::model::tensor_parallel
