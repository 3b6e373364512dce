// One rank's part of a checkpoint: a safetensors file whose tensors are named STATE@BEGIN/PARAMETER, each 1-D, and the
// rank's random state as bytes under "rng". One thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

inline constexpr char kRngName[] = "rng";

struct PieceName {
  std::string state;
  int64_t begin = 0;
  std::string parameter;
};
std::optional<PieceName> parse_piece_name(const std::string& tensor_name);

// Writes the shard, flushes it to the device, and returns size and hash. Without a random state the shard has none.
// Throws SystemError (73, 74).
CheckpointFile write_shard(const std::string& directory, int rank, const std::vector<StatePiece>& pieces,
                           const std::string& rng_state);

}  // namespace dslaunch::runtime
