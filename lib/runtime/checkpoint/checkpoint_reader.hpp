// Reads a checkpoint from any layout of shards: any part of any parameter's state, whatever the world size of the save.
// Files are mapped; a shard's hash is checked when its first byte is needed. One thread.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/checkpoint_metadata.hpp"
#include "runtime/checkpoint/read_plan.hpp"
#include "runtime/state/safetensors_file.hpp"

namespace dslaunch::runtime {

// A file of a checkpoint is missing, truncated or corrupted (65). Another checkpoint may be valid.
class DamagedCheckpoint : public UserError {
 public:
  explicit DamagedCheckpoint(const std::string& message) : UserError(ExitCode::kBadInput, message) {}
};

// A part of one state that no shard on this host holds.
struct MissingPiece {
  std::string parameter, state;
  SliceRange range;
};

class CheckpointReader {
 public:
  // `path`: a checkpoint (…/step_00000050) or a directory of checkpoints, whose newest complete one is opened, as
  // resolve_checkpoint_path() resolves it; incomplete and damaged ones that are skipped are named in the log. All files
  // are compared with the manifest's hashes. Throws UserError: 66 when there is none, 65 when a file is missing (or is
  // on another host only), has another size or other bytes, or is invalid.
  explicit CheckpointReader(const std::string& path);
  // The checkpoint in `directory` with files that may lie on other hosts: missing parts can be added. `directory` need
  // not exist. Throws DamagedCheckpoint for a local shard that is invalid.
  CheckpointReader(std::string directory, Manifest manifest);

  const std::string& path() const { return path_; }
  const CheckpointMetadata& metadata() const { return manifest_.metadata; }
  int world_size() const { return manifest_.world_size; }
  const SavedTensor* find(const std::string& parameter) const;  // null when absent

  // Whether a local shard has this state of the parameter at all.
  bool has(const std::string& parameter, const std::string& state) const;
  // Fills `out` (contiguous, CPU, any shape) with the elements of the flattened parameter, or of a flattened slice of
  // it, starting at `begin`, cast to its dtype. Throws UserError(65) naming parameter, state and elements when a part
  // is missing, DamagedCheckpoint when a file is.
  void read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out,
                 const std::optional<Slice>& slice = {});
  // Frees the memory of the mapped pages that were read so far.
  void drop_pages() const;
  // The state that this rank of the save has saved; empty: none, or it is not on this host.
  std::optional<std::string> rng_state(int saved_rank);
  // Path of the TorchScript file with emptied weights, checked; empty when the checkpoint has none.
  std::optional<std::string> skeleton();

  // --- a checkpoint whose parts lie on several hosts ---

  // Whether all shards of the manifest are on this host.
  bool is_complete() const;
  bool has_shard(const std::string& file) const;
  // The part of `range` from the first to the last element that no local shard holds and that was not added; empty when
  // there is none.
  std::optional<MissingPiece> missing(const std::string& parameter, const std::string& state,
                                      const SliceRange& range) const;
  // A local shard, its hash checked.
  const SafetensorsFile& verified_shard(const std::string& file);

  // --- values before their hashes are known ---

  // From now on read_into() does not wait for hashes: threads compare them beside it, and finish_checks() says what
  // they have found. `share`: the shards that this process checks, at once; other processes of this host check the
  // others. Without, it checks each shard whose values are read.
  void check_beside(const std::optional<std::vector<std::string>>& share);
  // Waits for them. Throws DamagedCheckpoint.
  void finish_checks();
  // Pieces and random states received from other hosts. `values`: 1-D.
  void add_piece(const std::string& parameter, const std::string& state, const SliceRange& range,
                 const at::Tensor& values);
  void add_rng_state(int rank, std::string bytes) { received_rng_[rank] = std::move(bytes); }

 private:
  struct Shard {
    CheckpointFile listed;
    std::unique_ptr<SafetensorsFile> file;  // null: not on this host
    bool verified = false;
    bool is_beside = false;     // a thread of this process checks it
    bool is_elsewhere = false;  // another process does
  };
  struct PieceSource {
    size_t shard = 0, entry = 0;
    at::Tensor received;  // set if received from another host
  };
  struct StatePieces {
    std::vector<SliceRange> ranges;
    std::vector<PieceSource> sources;  // by range
  };
  // Threads that compare hashes; they end early when nobody asks for their results any more.
  struct Checks {
    std::shared_ptr<std::atomic<bool>> are_dropped = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::future<void>> running;

    Checks() = default;
    Checks(Checks&&) = default;
    Checks& operator=(Checks&&) = default;
    ~Checks() {
      if (are_dropped) *are_dropped = true;
    }
  };
  using PieceKey = std::pair<std::string, std::string>;  // parameter, state
  void open_files();
  void add_pieces(size_t shard);
  void add_located(const PieceKey& key, const SliceRange& range, PieceSource source);
  void require_no_overlaps() const;
  ReadPlan plan(const PieceKey& key, const SliceRange& request) const;
  [[noreturn]] void refuse_gaps(const PieceKey& key, const SliceRange& request, const std::vector<Range>& gaps) const;
  at::Tensor values_of(const PieceSource& piece);
  void verify(Shard& shard);
  void begin_check(const std::vector<Shard*>& shards);
  void verify_files();
  Shard* shard_named(const std::string& file);

  std::string path_;
  Manifest manifest_;
  std::map<std::string, size_t> parameters_;  // name -> index
  std::vector<Shard> shards_;
  std::optional<CheckpointFile> skeleton_;
  std::map<PieceKey, StatePieces> pieces_;
  std::map<int, std::string> received_rng_;  // by rank
  bool checks_beside_ = false;
  Checks checks_;
  std::exception_ptr damage_;  // what they have found
};

}  // namespace dslaunch::runtime
