// Reading a checkpoint from any layout of shards: any part of any parameter's state, whatever the world size it was
// saved at. Files are mapped; a shard's hash is checked when its first byte is needed. One thread.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/state/safetensors_file.hpp"

namespace dslaunch::runtime {

// A file of a checkpoint is missing, cut off or not what was written (65). Another checkpoint may be sound.
class DamagedCheckpoint : public UserError {
 public:
  explicit DamagedCheckpoint(const std::string& message) : UserError(ExitCode::kBadInput, message) {}
};

// A part of one state that no shard here holds.
struct MissingPiece {
  std::string parameter, state;
  int64_t begin = 0, end = 0;
};

class CheckpointReader {
 public:
  // `path`: a checkpoint (…/step_00000050) or a folder of checkpoints, of which the newest complete one is opened, as
  // meant_folder() has it; torn ones that are passed over are named in the log. Throws UserError: 66 when there is
  // none, 65 when a file is missing (or lies on another host only), of another size, or not sound.
  explicit CheckpointReader(const std::string& path);
  // The checkpoint in `folder` with files that may lie elsewhere: what is not here can be added. `folder` need not be
  // there at all. Throws DamagedCheckpoint for a shard that is here and not sound.
  CheckpointReader(std::string folder, Manifest manifest);

  const std::string& path() const { return path_; }
  const CheckpointMetadata& metadata() const { return manifest_.metadata; }
  int world_size() const { return manifest_.world_size; }
  const SavedTensor* find(const std::string& parameter) const;  // null when absent

  // Whether a shard here has this state of the parameter at all.
  bool has(const std::string& parameter, const std::string& state) const;
  // Fills `out` (contiguous, CPU, any shape) with the elements from `begin` on of the flattened parameter, cast to its
  // dtype. Throws UserError(65) naming parameter, state and range when a part is missing, DamagedCheckpoint when a file
  // is.
  void read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out);
  // Gives back the memory of the mapped pages that were read so far.
  void forget_pages() const;
  // What this rank gave when the world had this size; nothing at another world size.
  std::optional<std::string> rng_state(int rank, int world_size);
  // Path of the TorchScript file with emptied weights, checked; nothing when the checkpoint has none.
  std::optional<std::string> skeleton();

  // --- a checkpoint whose parts lie on several hosts ---

  // All shards of the manifest are here.
  bool is_whole() const;
  bool has_shard(const std::string& file) const;
  // The parts of [begin, end) that no shard here holds and that were not added.
  std::vector<MissingPiece> missing(const std::string& parameter, const std::string& state, int64_t begin,
                                    int64_t end) const;
  // A shard that is here, its hash checked.
  const SafetensorsFile& verified_shard(const std::string& file);
  // Pieces and random states that came from elsewhere. `values`: 1-D.
  void add_piece(const std::string& parameter, const std::string& state, int64_t begin, const at::Tensor& values);
  void add_rng_state(int rank, std::string bytes) { received_rng_[rank] = std::move(bytes); }

 private:
  struct Shard {
    CheckpointFile listed;
    std::unique_ptr<SafetensorsFile> file;  // null: not here
    bool verified = false;
  };
  struct PlacedPiece {
    int64_t begin = 0, end = 0;
    size_t shard = 0, entry = 0;
    at::Tensor received;  // when it came from elsewhere; else undefined
  };
  using PieceKey = std::pair<std::string, std::string>;  // parameter, state
  void open_files();
  void add_pieces(size_t shard);
  void place(const PieceKey& key, PlacedPiece piece);
  at::Tensor values_of(const PlacedPiece& piece);
  void verify(Shard& shard);
  Shard* shard_named(const std::string& file);
  const PlacedPiece* furthest_piece_at(const std::string& parameter, const std::string& state, int64_t element) const;

  std::string path_;
  Manifest manifest_;
  std::map<std::string, size_t> parameters_;  // name -> index
  std::vector<Shard> shards_;
  std::optional<CheckpointFile> skeleton_;
  std::map<PieceKey, std::vector<PlacedPiece>> pieces_;  // by begin
  std::map<int, std::string> received_rng_;              // by rank
};

}  // namespace dslaunch::runtime
