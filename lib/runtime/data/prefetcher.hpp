// Batches assembled ahead by worker threads and handed out in order. next() may be called by one thread at a time.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/data/batch_assembly.hpp"

namespace dslaunch::runtime {

class Prefetcher {
 public:
  // The next micro batch, or empty at the end; called under a lock, in order.
  using Plan = std::function<std::optional<MicroBatchPlan>()>;

  // `num_workers` 0: all work happens in next(). At most `depth` batches (at least 1) are stored or in progress. Throws
  // std::system_error when the system fails to create a thread.
  Prefetcher(Plan plan, BatchAssembler assembler, int64_t num_workers, int64_t depth);
  ~Prefetcher();  // waits for batches in progress
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Empty at the end. A worker's error is thrown here, in place of the batch that it belongs to.
  std::optional<Batch> next();
  // Whether next() returns without waiting for a batch to be read; never without workers.
  bool is_ready();

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr error;
  };
  void work();
  void stop();  // waits for the workers to exit

  const BatchAssembler assembler_;
  const size_t depth_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable changed_;
  Plan plan_;
  std::deque<std::shared_ptr<Slot>> slots_;  // in the order of the plan
  bool exhausted_ = false;
  bool stopping_ = false;

  std::vector<std::thread> workers_;  // fixed after construction
};

}  // namespace dslaunch::runtime
