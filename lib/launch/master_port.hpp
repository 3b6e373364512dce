// The master port of a job on node rank 0: bound before any rank starts and held until the job knows what to do with
// it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "launch/message.hpp"
#include "rendezvous/store_server.hpp"

namespace dslaunch::launch {

class MasterPort {
 public:
  // Binds, unless the launcher has done so already and hands its `listener` over. A port that is taken: UserError(69)
  // that names the holder. For a `run` job serves the store at once.
  MasterPort(const JobDescription& job, UniqueFd listener);

  uint16_t number() const { return number_; }
  // Ranks that have never joined the store; none where the store does not know its clients (exec).
  std::vector<int> ranks_not_joined() const;
  // Right before the ranks start. A program that `exec` starts binds the port itself, in its rank 0, as torch does; so
  // the port is let go here, and something else could take it in the moments between. The agent will serve torch's
  // store on it instead once it speaks that protocol.
  void release_to_program();

  // Does this node hold a port for this job? A single worker needs no meeting place.
  static bool needed(const JobDescription& job);

 private:
  int world_size_ = 1;
  uint16_t number_ = 0;
  UniqueFd held_;                                   // exec
  std::unique_ptr<rendezvous::StoreServer> store_;  // run
};

}  // namespace dslaunch::launch
