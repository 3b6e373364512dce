#include "runtime/data/prefetcher.hpp"

#include <pthread.h>

#include <algorithm>

namespace dslaunch::runtime {

Prefetcher::Prefetcher(Plan plan, BatchAssembler assembler, int64_t num_workers, int64_t depth)
    : assembler_(std::move(assembler)),
      depth_(static_cast<size_t>(std::max<int64_t>(depth, 1))),
      plan_(std::move(plan)) {
  try {
    for (int64_t i = 0; i < num_workers; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // the system failed to create a thread; the earlier ones are already running
    stop();
    throw;
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (auto& worker : workers_) worker.join();
}

std::optional<Batch> Prefetcher::next() {
  if (workers_.empty()) {
    const auto plan = plan_();
    return plan ? std::optional<Batch>(assembler_.assemble(*plan)) : std::nullopt;
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return slots_.empty() ? exhausted_ : slots_.front()->ready; });
  if (slots_.empty()) return std::nullopt;
  const std::shared_ptr<Slot> slot = slots_.front();
  slots_.pop_front();
  lock.unlock();
  changed_.notify_all();
  if (slot->error) std::rethrow_exception(slot->error);
  return std::move(slot->batch);
}

bool Prefetcher::is_ready() {
  const std::lock_guard lock(mutex_);
  return !workers_.empty() && (slots_.empty() ? exhausted_ : slots_.front()->ready);
}

void Prefetcher::work() {
  ::pthread_setname_np(::pthread_self(), "data loader");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || exhausted_ || slots_.size() < depth_; });
    if (stopping_ || exhausted_) return;
    std::optional<MicroBatchPlan> plan;
    try {
      plan = plan_();
    } catch (...) {  // a batch too large for memory
      slots_.push_back(std::make_shared<Slot>(Slot{true, {}, std::current_exception()}));
    }
    if (!plan) {
      exhausted_ = true;
      changed_.notify_all();
      return;
    }
    const auto slot = slots_.emplace_back(std::make_shared<Slot>());
    lock.unlock();
    Batch batch;
    std::exception_ptr error;
    try {
      batch = assembler_.assemble(*plan);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot->batch = std::move(batch);
    slot->error = error;
    slot->ready = true;
    changed_.notify_all();
  }
}

}  // namespace dslaunch::runtime
