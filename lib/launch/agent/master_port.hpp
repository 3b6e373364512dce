// The master port of a job on node rank 0: bound before any rank starts, held until the job ends, and serving the store
// all that time. Workers prove the job's token; PyTorch clients are served if a rank may be a PyTorch program.
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
  // Binds, unless the launcher passes its bound `listener`, and serves. A port that is taken: UserError(69) that names
  // the holder. May look up the names of the job's hosts, since PyTorch clients are identified by their addresses.
  MasterPort(const JobDescription& job, UniqueFd listener, bool serve_torch_store);

  uint16_t number() const { return number_; }
  // Ranks that have never joined the store; none if the store does not know its clients (exec).
  std::vector<int> ranks_not_joined() const;

  // Whether this node holds a port for this job. A single worker needs no store.
  static bool needed(const JobDescription& job);

 private:
  const int world_size_;
  const bool ranks_join_;
  uint16_t number_ = 0;
  std::unique_ptr<rendezvous::StoreServer> store_;
};

}  // namespace dslaunch::launch
