#include "comm/abort_flag.hpp"

#include "base/error.hpp"

namespace dslaunch::comm {
namespace {

constexpr std::chrono::milliseconds kPollInterval{1};

}  // namespace

void AbortFlag::trip(const std::string& reason, int rank, const std::string& host) {
  // The action runs under the lock: disarm() must not return while the action runs.
  std::lock_guard lock(mutex_);
  if (tripped_) return;
  tripped_ = true;
  rank_ = rank;
  host_ = host;
  reason_ = reason;
  if (action_) action_();
  changed_.notify_all();
}

void AbortFlag::set_abort_action(std::function<void()> action) {
  std::lock_guard lock(mutex_);
  action_ = std::move(action);
  if (tripped_) action_();
}

void AbortFlag::disarm() {
  std::lock_guard lock(mutex_);
  action_ = nullptr;
}

bool AbortFlag::tripped() const {
  std::lock_guard lock(mutex_);
  return tripped_;
}

bool AbortFlag::wait_until_tripped(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return tripped_; });
}

void AbortFlag::check(std::string_view phase) const {
  std::lock_guard lock(mutex_);
  if (tripped_) throw PeerError(rank_, host_, phase, reason_);
}

void AbortFlag::wait_until(const std::function<bool()>& is_reached, std::string_view phase) const {
  check(phase);
  while (!is_reached()) {
    if (wait_until_tripped(kPollInterval)) check(phase);
  }
}

std::shared_ptr<AbortFlag> watch_peers(rendezvous::Store& store) {
  auto abort_flag = std::make_shared<AbortFlag>();
  store.on_peer_lost([weak = std::weak_ptr(abort_flag)](const rendezvous::LostRank& lost) {
    if (auto held = weak.lock()) held->trip(lost.reason, lost.rank, lost.host);
  });
  return abort_flag;
}

}  // namespace dslaunch::comm
