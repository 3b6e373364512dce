// One rank's part of a checkpoint: a safetensors file whose tensors, each 1-D, are named STATE@BEGIN/PARAMETER, or
// STATE[DIM:START:LENGTH]@BEGIN/PARAMETER for a part of a slice, and the rank's random state as bytes under "rng". One
// thread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

inline constexpr char kRngName[] = "rng";

// "[DIM:START:LENGTH]".
std::string slice_text(const Slice& slice);

struct PieceName {
  std::string state;
  std::optional<Slice> slice;
  int64_t begin = 0;
  std::string parameter;
};
// Empty for any other name. Whether the slice fits the parameter is not known here.
std::optional<PieceName> parse_piece_name(const std::string& tensor_name);

// Writes the shard, flushes it to the device, and returns size and hash. Without a random state the shard has none.
// Throws SystemError (73, 74).
CheckpointFile write_shard(const std::string& directory, int rank, const std::vector<StatePiece>& pieces,
                           const std::string& rng_state);

}  // namespace dslaunch::runtime
