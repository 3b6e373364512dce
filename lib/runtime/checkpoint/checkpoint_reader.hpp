// Reading a checkpoint from any layout of shards: any part of any parameter's state, whatever the world size it was
// saved at. Files are mapped; a shard's hash is checked when its first byte is needed. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/state/safetensors_file.hpp"

namespace dslaunch::runtime {

class CheckpointReader {
 public:
  // `path`: a checkpoint (…/step_00000050) or a folder of checkpoints, of which the newest complete one is opened.
  // Throws UserError: 66 when there is none, 65 when a file is missing, of another size, or not sound.
  explicit CheckpointReader(const std::string& path);

  const std::string& path() const { return path_; }
  const CheckpointMetadata& metadata() const { return manifest_.metadata; }
  int world_size() const { return manifest_.world_size; }
  const SavedTensor* find(const std::string& parameter) const;  // null when absent

  // Throws UserError(65) naming the first parameter that is missing here, or whose shape differs.
  void require_match(const std::vector<SavedTensor>& model) const;
  // Whether the parameter has this state at all.
  bool has(const std::string& parameter, const std::string& state) const;
  // Fills `out` (contiguous, CPU, any shape) with the elements from `begin` on of the flattened parameter, cast to its
  // dtype. Throws UserError(65) naming parameter, state and range when a part is missing, and when a file is damaged.
  void read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out);
  // Gives back the memory of the mapped pages that were read so far.
  void forget_pages() const;
  // What this rank gave when the world had this size; nothing at another world size.
  std::optional<std::string> rng_state(int rank, int world_size);
  // Path of the TorchScript file with emptied weights, checked; nothing when the checkpoint has none.
  std::optional<std::string> skeleton();

 private:
  struct Shard {
    CheckpointFile listed;
    std::unique_ptr<SafetensorsFile> file;
    bool verified = false;
  };
  struct PlacedPiece {
    int64_t begin = 0, end = 0;
    size_t shard = 0, entry = 0;
  };
  void open_files();
  void add_pieces(size_t shard);
  void verify(Shard& shard);

  std::string path_;
  Manifest manifest_;
  std::map<std::string, size_t> parameters_;  // name -> index
  std::vector<Shard> shards_;
  std::optional<CheckpointFile> skeleton_;
  std::map<std::pair<std::string, std::string>, std::vector<PlacedPiece>> pieces_;  // (parameter, state), by begin
};

}  // namespace dslaunch::runtime
