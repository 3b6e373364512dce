// What the ranks of this node tell and use, for StatusWanted. A thread reads it, since the GPUs' driver may take
// seconds. One thread uses this.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status_page.hpp"
#include "launch/channel/message.hpp"
#include "launch/event_loop/file_thread.hpp"

namespace dslaunch::launch {

struct WatchedRank {
  int rank = 0;
  pid_t pid = -1;
  std::shared_ptr<const StatusPage> page;  // null: it tells nothing
  std::string device;                      // as CUDA_VISIBLE_DEVICES names it; empty: none
};

// The one of its devices that a rank uses: the only one, or of all devices of the node the one at its local rank.
std::string device_of_rank(const std::string& visible_devices, int local_rank);

class NodeStatusReader {
 public:
  // Reads in the background. While an earlier request is still being answered, both are dropped.
  void request(const StatusWanted& wanted, std::vector<WatchedRank> ranks);
  // Readable once an answer may be there; -1: nothing was requested yet.
  int fd() const { return thread_ ? thread_->fd() : -1; }
  // The answer to the last request, once.
  std::optional<NodeStatus> take();

 private:
  struct Answer;
  struct Gpus;
  std::shared_ptr<Gpus> gpus_;      // used by the thread only
  std::shared_ptr<Answer> answer_;  // of the last request; null: none is expected
  std::unique_ptr<FileThread> thread_;
};

}  // namespace dslaunch::launch
