#include "runtime/telemetry/comms_log.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/format.hpp"
#include "runtime/telemetry/python_text.hpp"

namespace dslaunch::runtime {
namespace {

constexpr size_t kMaxSamples = 8192;
constexpr double kShortest = 1e-6;  // ms; clocks have no finer resolution

std::string column(const std::string& text) {
  return fmt::format("{:<20}", text);
}
std::string column(double number) {
  return fmt::format("{:<20.2f}", number);
}

}  // namespace

Bandwidth bandwidth_of(const std::string& op, size_t bytes, int group_size, double milliseconds) {
  const double n = group_size;
  const double gigabits_a_byte = 8 / 1e6 / std::max(milliseconds, kShortest);
  double size = static_cast<double>(bytes) * gigabits_a_byte;
  if (op == "all_gather_into_tensor" || op == "reduce_scatter_tensor") return {size * n, size * (n - 1)};
  if (op == "all_reduce") return {2 * size, size * 2 * (n - 1) / n};
  if (op == "all_to_all_single") return {size, size * (n - 1) / n};
  return {size, size};
}

double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(std::nearbyint(static_cast<double>(values.size()) * 0.1));
  const double sum = std::accumulate(values.begin() + cut, values.end() - cut, 0.0);
  return sum / static_cast<double>(static_cast<std::ptrdiff_t>(values.size()) - 2 * cut);
}

void Latencies::add(double milliseconds) {
  if (count_ % stride_ == 0) sample_.push_back(milliseconds);
  count_ += 1;
  total_ += milliseconds;
  if (sample_.size() < kMaxSamples) return;
  for (size_t i = 0; 2 * i < sample_.size(); ++i) sample_[i] = sample_[2 * i];
  sample_.resize(sample_.size() / 2);
  stride_ *= 2;
}

bool CommsLog::is_wanted(const std::string& op) const {
  const auto& wanted = options_.prof_ops;
  return options_.prof_all || std::find(wanted.begin(), wanted.end(), op) != wanted.end();
}

void CommsLog::issued(const std::shared_ptr<const CollectiveRecord>& record) {
  if (!is_wanted(record->op)) return;
  const std::lock_guard lock(mutex_);
  pending_.push_back({record, {}});
}

void CommsLog::name_phases(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  for (auto& pending : pending_) {
    if (pending.phase.empty()) pending.phase = phase;
  }
}

void CommsLog::begin_step(int64_t) {
  name_phases("between steps");
}

void CommsLog::end_phase(StepPhase phase) {
  name_phases(runtime::name_of(phase));
}

std::string CommsLog::name_of_call(const Pending& pending) const {
  if (!options_.debug) return pending.record->op;
  return fmt::format("{} | [Caller Func: {}]", pending.record->op,
                     pending.phase.empty() ? "between steps" : pending.phase);
}

std::vector<std::string> CommsLog::collect(bool wait) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  auto pending = pending_.begin();
  for (; pending != pending_.end(); ++pending) {
    const auto& record = *pending->record;
    if (!wait && !is_reached(record.end)) break;
    const std::string name = name_of_call(*pending);
    const double latency = milliseconds_between(record.begin, record.end);
    if (entries_.count(name) == 0) names_.push_back(name);
    Entry& entry = entries_[name][record.bytes];
    entry.op = record.op;
    entry.group_size = record.group_size;
    entry.latencies.add(latency);
    if (!options_.verbose) continue;
    const Bandwidth bandwidth = bandwidth_of(record.op, record.bytes, record.group_size, latency);
    lines.push_back(
        fmt::format("comm op: {} | time (ms): {:.2f} | msg size: {} | algbw (Gbps): {:.2f} | busbw (Gbps): {:.2f}",
                    name, latency, python_size(record.bytes), bandwidth.algorithm, bandwidth.bus));
  }
  pending_.erase(pending_.begin(), pending);
  return lines;
}

std::string CommsLog::table() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const char* title : {"Comm. Op", "Message Size", "Count", "Total Latency(ms)", "Avg Latency(ms)",
                            "tput_avg (Gbps)", "busbw_avg (Gbps)"}) {
    out += column(title);
  }
  for (const auto& name : names_) {
    out += "\n" + name;
    for (const auto& [bytes, entry] : entries_.at(name)) {
      std::vector<double> algorithm, bus;
      for (double latency : entry.latencies.sample()) {
        const Bandwidth bandwidth = bandwidth_of(entry.op, bytes, entry.group_size, latency);
        algorithm.push_back(bandwidth.algorithm);
        bus.push_back(bandwidth.bus);
      }
      out += "\n" + column(" ") + column(python_size(bytes)) + column(fmt::format("{}", entry.latencies.count())) +
             column(entry.latencies.total()) + column(trimmed_mean(entry.latencies.sample())) +
             column(trimmed_mean(algorithm)) + column(trimmed_mean(bus));
    }
  }
  return out;
}

}  // namespace dslaunch::runtime
