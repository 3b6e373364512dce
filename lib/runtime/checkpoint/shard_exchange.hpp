// Sends parts of a checkpoint that lie on other hosts over the job's communicator: shard after shard, the rank that has
// the shard broadcasts its pieces, and the ranks that need them keep them. Simple rather than economical: pieces that
// no rank needs are not sent, pieces that one rank needs are sent to all. Collective; one thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "comm/communicator.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"

namespace dslaunch::runtime {

struct RemoteNeeds {
  std::vector<MissingPiece> pieces;
  std::optional<int> rng_of;  // the random state of this rank of the saved world
};

// `holders`: shard -> the rank that reads it, the same on all ranks; `device`: where the communicator's buffers are.
// Adds the received pieces to `reader`. The error is that of a shard on its host, the same on all ranks.
Result<> fetch_remote_pieces(comm::Communicator& world, at::Device device, const std::map<std::string, int>& holders,
                             const RemoteNeeds& needs, CheckpointReader& reader);

}  // namespace dslaunch::runtime
