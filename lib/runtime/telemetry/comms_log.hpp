// "comms_logger": every collective's size, latency and bandwidths, as DeepSpeed's comms logger computes them, and its
// summary table. issued() from any thread, everything else on the engine's thread.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/telemetry/observed_communicator.hpp"
#include "runtime/telemetry/step_phases.hpp"

namespace dslaunch::runtime {

struct Bandwidth {
  double algorithm = 0, bus = 0;  // Gbit/s
};
// DeepSpeed's formulas (those of nccl-tests for the bus bandwidth); `op` by DeepSpeed's names.
Bandwidth bandwidth_of(const std::string& op, size_t bytes, int group_size, double milliseconds);

// The mean without the lowest and the highest tenth, as DeepSpeed averages. 0 for no values.
double trimmed_mean(std::vector<double> values);

// Latencies of one kind of call: exact counts and sums, and up to 8192 values for the averages (with more calls, every
// second, fourth, … value).
class Latencies {
 public:
  void add(double milliseconds);
  int64_t count() const { return count_; }
  double total() const { return total_; }
  const std::vector<double>& sample() const { return sample_; }

 private:
  int64_t count_ = 0, stride_ = 1;
  double total_ = 0;
  std::vector<double> sample_;
};

class CommsLog final : public StepObserver, public CollectiveObserver {
 public:
  explicit CommsLog(config::CommsLogger options) : options_(std::move(options)) {}

  void issued(const std::shared_ptr<const CollectiveRecord>& record) override;
  void begin_step(int64_t) override;
  void end_phase(StepPhase phase) override;
  void end_step() override {}

  // Counts the collectives that the device has finished, or waits for all of them; returns a line for each when
  // verbose.
  std::vector<std::string> collect(bool wait);
  // The table of all collectives counted so far.
  std::string table() const;

 private:
  struct Pending {
    std::shared_ptr<const CollectiveRecord> record;
    std::string phase;  // empty: not known yet
  };
  struct Entry {
    Latencies latencies;
    std::string op;
    int group_size = 1;
  };

  bool is_wanted(const std::string& op) const;
  std::string name_of_call(const Pending& pending) const;
  void name_phases(std::string_view phase);

  const config::CommsLogger options_;
  mutable std::mutex mutex_;
  std::vector<Pending> pending_;                            // guarded; in the order of issue
  std::vector<std::string> names_;                          // guarded; in order of first use, as in DeepSpeed
  std::map<std::string, std::map<size_t, Entry>> entries_;  // guarded; by name, by bytes
};

}  // namespace dslaunch::runtime
