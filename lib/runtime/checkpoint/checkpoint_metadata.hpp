// The metadata of a checkpoint: plain data, and its JSON form, the manifest (docs/checkpoint_format.md).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/mesh.hpp"
#include "runtime/checkpoint/piece_values.hpp"
#include "runtime/state/data_position.hpp"
#include "runtime/state/slice.hpp"

namespace dslaunch::runtime {

// A parameter or buffer of the model, whole.
struct SavedTensor {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;  // the model's own
  bool trainable = true;
  bool is_buffer = false;
  std::vector<std::string> aliases;  // other names of the same tensor (tied weights)
  int64_t moments_since = 0;         // of a trained parameter: the count of applied steps when its moments began

  int64_t numel() const;
  std::vector<std::string> all_names() const;  // its own first
};

// The state that holds the tensor's values: "master", "frozen" or "buffer".
const char* weight_state(const SavedTensor& tensor);

// A part of one parameter's state that one rank owns.
struct StatePiece {
  std::string parameter;
  std::string state;  // "master", "exp_avg", "exp_avg_sq", "momentum", "buffer", "frozen"
  int64_t begin = 0;  // first element within the flattened slice
  PieceValues values;
  std::optional<Slice> slice = {};  // of the parameter; empty: the whole parameter
};

struct CheckpointMetadata {
  int64_t step = 0;                     // optimizer steps done
  std::vector<SavedTensor> parameters;  // parameters and buffers of the model
  DataPosition position;
  std::map<std::string, double> scalars;  // optimizer, schedule, loss scale; whole numbers are exact up to 2^53
  std::string config;                     // the resolved config as text
  std::string job;                        // the id of the job that wrote it; empty: not known
  std::optional<comm::Mesh> mesh = {};    // of the ranks that wrote it; empty: not known
};

// Which rank of a save has the random state with which `rank` of a run on `now` continues; empty: none does. It is that
// of the same place along data and pipe, where these are divided as they were; tensor ranks draw the same numbers.
std::optional<int> rank_with_random_state(const CheckpointMetadata& saved, int saved_world_size, const comm::Mesh& now,
                                          int rank);

// Steps that were not skipped since the moments were zero.
int64_t applied_steps(const CheckpointMetadata& metadata);
// Steps before those, which the learning rate schedule counts too.
int64_t schedule_offset(const CheckpointMetadata& metadata);

// A file of the checkpoint as the manifest lists it.
struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  std::string xxh3_128;  // hexadecimal
  std::string host;      // the host that stores it when every node keeps its own part of the checkpoint; else empty
};

struct Manifest {
  CheckpointMetadata metadata;
  int world_size = 1;
  std::vector<CheckpointFile> files;  // shards by rank, then model.pt and whole weights if there are any
};

// Format 2: the manifest has its own checksum. Format 3: pieces may be cut from slices of a parameter. All of them can
// be read; format 3 is written.
inline constexpr int kCheckpointFormat = 3;

// Throws UserError (65) naming a parameter or buffer whose type a checkpoint cannot hold.
void require_savable(const CheckpointMetadata& metadata);

std::string to_json(const Manifest& manifest);
// Throws UserError(65) when a byte of the text has changed since it was written; `path` is for messages.
Manifest manifest_from_json(const std::string& text, const std::string& path);

}  // namespace dslaunch::runtime
