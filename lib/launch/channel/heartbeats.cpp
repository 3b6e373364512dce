#include "launch/channel/heartbeats.hpp"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>

#include "base/blocked_signals.hpp"

namespace dslaunch::launch {

Heartbeats::Heartbeats(ChannelToLauncher& channel, std::chrono::milliseconds interval) {
  if (interval <= std::chrono::milliseconds(0)) return;
  const BlockedSignals blocked;
  try {
    thread_ = std::jthread([&channel, interval](const std::stop_token& stop) {
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      while (!never.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) channel.send(Heartbeat{});
    });
  } catch (const std::system_error&) {  // thread limit: most preparations end before the launcher misses a heartbeat
  }
}

}  // namespace dslaunch::launch
