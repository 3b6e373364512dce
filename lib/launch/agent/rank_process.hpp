// One rank on its node, from start to end, as the agent sees it. One thread.
#pragma once
#include <functional>
#include <memory>

#include "base/status_page.hpp"
#include "launch/channel/message.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launch {

class RankProcess {
 public:
  using Sink = std::function<void(RankOutput)>;

  // `page`: what the rank tells about itself; null: nothing.
  RankProcess(int rank, spawn::Process process, std::shared_ptr<const StatusPage> page)
      : rank_(rank), process_(std::move(process)), page_(std::move(page)) {}

  int rank() const { return rank_; }
  pid_t pid() const { return process_.pid; }
  bool running() const { return running_; }
  const std::shared_ptr<const StatusPage>& page() const { return page_; }
  bool stop_sent() const { return stop_sent_; }

  // A rank stopped by SIGSTOP is continued so that it receives SIGTERM.
  void stop(int signal);
  void signal(int signal);
  void mark_ended() { running_ = false; }

  // Open read ends; -1 once closed.
  int out() const { return process_.out.get(); }
  int err() const { return process_.err.get(); }
  // Reads available bytes, up to `most_bytes` per stream. A stream at its end is closed.
  void read_output(const Sink& sink, size_t most_bytes);

 private:
  void read_stream(UniqueFd& fd, Stream stream, const Sink& sink, size_t most_bytes);

  int rank_;
  spawn::Process process_;
  std::shared_ptr<const StatusPage> page_;
  bool running_ = true, stop_sent_ = false;
};

}  // namespace dslaunch::launch
