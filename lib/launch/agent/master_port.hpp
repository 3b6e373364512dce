// The master port of a job on node rank 0: bound before any rank starts, held until the job ends, and the store served
// on it all that time. Ranks of ours prove the job's token; torch's clients are served where a program may be one.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/channel/message.hpp"
#include "rendezvous/store_server.hpp"

namespace dslaunch::launch {

class MasterPort {
 public:
  // Binds, unless the launcher has done so already and hands its `listener` over, and serves. A port that is taken:
  // UserError(69) that names the holder. May look up the names of the job's hosts, since torch's clients are told by
  // their addresses.
  MasterPort(const JobDescription& job, UniqueFd listener, bool serve_torch_store);

  uint16_t number() const { return number_; }
  // Ranks that have never joined the store; none where the store does not know its clients (exec).
  std::vector<int> ranks_not_joined() const;

  // Does this node hold a port for this job? A single worker needs no meeting place.
  static bool needed(const JobDescription& job);
  // Is it to be served to torch's clients? The ranks' environment has to say the same (TORCHELASTIC_USE_AGENT_STORE).
  static bool serves_torch_store(const JobDescription& job) { return job.kind == JobKind::kExec; }

 private:
  const int world_size_;
  const bool ranks_join_;
  uint16_t number_ = 0;
  std::unique_ptr<rendezvous::StoreServer> store_;
};

}  // namespace dslaunch::launch
