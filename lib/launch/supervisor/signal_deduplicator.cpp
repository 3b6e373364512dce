#include "launch/supervisor/signal_deduplicator.hpp"

namespace dslaunch::launch {

using namespace std::chrono_literals;

// Nobody presses twice in this time.
constexpr auto kSameSourceInterval = 50ms;
// From the first node that a scheduler signals to the last.
constexpr auto kAllSourcesInterval = 2000ms;

bool InterruptDeduplicator::take(SignalSource from, SignalTime now) {
  const auto source = sources_.find(from);
  if (source != sources_.end() && now - source->second < kSameSourceInterval) return false;
  const bool is_another_source = source == sources_.end() && !sources_.empty();
  if (!is_another_source || now - began_ >= kAllSourcesInterval) {
    sources_.clear();
    began_ = now;
  }
  sources_[from] = now;
  return sources_.size() == 1;
}

// The counts of several places are comparable only while the last new signal is recent.
bool UserSignalDeduplicator::take(SignalSource from, SignalTime now) {
  if (now - newest_ >= kAllSourcesInterval) {
    counts_.clear();
    most_ = 0;
  }
  if (++counts_[from] <= most_) return false;
  most_ = counts_[from];
  newest_ = now;
  return true;
}

}  // namespace dslaunch::launch
