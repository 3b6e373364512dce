#include "runtime/checkpoint/checkpoint_reader.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kWhat[] = "checkpoint file";
constexpr size_t kHashedBytes = 8 << 20;

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

std::string damaged(const std::string& directory, const std::string& fault) {
  return fmt::format("the checkpoint '{}' is damaged: {}; use another checkpoint", directory, fault);
}

std::string in_parts(const FoundCheckpoint& found) {
  return fmt::format(
      "the checkpoint '{}' was saved with use_node_local_storage, and the files of other hosts are not on this host: "
      "{}. Copy the checkpoint's directories of all hosts into one directory (their files have different names), or "
      "read it in a job on these hosts",
      found.path, describe_by_host(found.elsewhere));
}

[[noreturn]] void refuse_all(const std::string& path, const std::vector<FoundCheckpoint>& found) {
  std::error_code ignored;
  for (const auto& checkpoint : found) {
    if (!checkpoint.loadable.ok() && checkpoint.has_manifest)
      throw DamagedCheckpoint(damaged(checkpoint.path, checkpoint.loadable.error()));
    if (checkpoint.loadable.ok()) refuse(in_parts(checkpoint));
  }
  if (!fs::is_directory(path, ignored)) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("no checkpoint at '{}': {}", path,
                                fs::exists(path, ignored) ? "expected a directory, got a file" : "no such directory"));
  }
  const bool in_run = !steps_in(path + "/checkpoints").empty();
  throw UserError(ExitCode::kNoInput,
                  fmt::format("'{}' has no complete checkpoint (no directory step_N with a {}){}", path, kManifestName,
                              in_run ? fmt::format("; did you mean '{}/checkpoints'?", path) : ""));
}

// The newest checkpoint that is complete on this host; logs those that are not.
FoundCheckpoint choose(const std::string& path) {
  std::error_code ignored;
  const bool is_checkpoint = fs::exists(fs::path(path) / kManifestName, ignored);
  auto found = is_checkpoint ? std::vector{inspect_checkpoint(path)} : survey_checkpoints(path);
  for (auto& checkpoint : found) {
    if (checkpoint.loadable.ok() && checkpoint.elsewhere.empty()) return std::move(checkpoint);
    if (!is_checkpoint) {
      log::warning("skipping '{}': {}", checkpoint.path,
                   checkpoint.loadable.ok() ? "files of other hosts are missing" : checkpoint.loadable.error());
    }
  }
  refuse_all(path, found);
}

void require_hash(const std::string& directory, const CheckpointFile& listed, const MappedFile& file) {
  file.advise_sequential();
  ContentHash hashing;
  // In parts, each freed after hashing: a shard may be larger than the memory.
  for (size_t at = 0; at < file.size(); at += kHashedBytes) {
    hashing.update(file.data() + at, std::min(kHashedBytes, file.size() - at));
    file.drop_pages(at, kHashedBytes);
  }
  const std::string hash = hashing.hex();
  if (hash != listed.xxh3_128) {
    throw DamagedCheckpoint(damaged(
        directory, fmt::format("{} has the hash {}, its manifest says {}", listed.name, hash, listed.xxh3_128)));
  }
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path) {
  auto found = choose(resolve_checkpoint_path(path));
  path_ = std::move(found.path);
  manifest_ = std::move(*found.manifest);
  open_files();
}

CheckpointReader::CheckpointReader(std::string directory, Manifest manifest)
    : path_(std::move(directory)), manifest_(std::move(manifest)) {
  open_files();
}

void CheckpointReader::open_files() {
  const auto& parameters = manifest_.metadata.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) parameters_[parameters[i].name] = i;
  for (const auto& listed : manifest_.files) {
    if (listed.name == kSkeletonName) skeleton_ = listed;
    if (!is_shard_name(listed.name)) continue;
    shards_.push_back({listed, nullptr, false});
    std::error_code ignored;
    const std::string file = path_ + "/" + listed.name;
    if (!fs::exists(file, ignored)) continue;
    try {
      shards_.back().file = std::make_unique<SafetensorsFile>(file, kWhat);
    } catch (const UserError& error) {
      throw DamagedCheckpoint(damaged(path_, error.what()));
    }
    add_pieces(shards_.size() - 1);
  }
}

void CheckpointReader::add_pieces(size_t shard) {
  const auto& entries = shards_[shard].file->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == kRngName) continue;
    const auto name = parse_piece_name(entries[i].name);
    const SavedTensor* parameter = name ? find(name->parameter) : nullptr;
    if (!parameter || entries[i].shape.size() != 1 || entries[i].shape[0] > parameter->numel() - name->begin) {
      throw DamagedCheckpoint(
          damaged(path_, fmt::format("{} has '{}', which does not match any parameter of the manifest",
                                     shards_[shard].listed.name, entries[i].name)));
    }
    add_located({name->parameter, name->state}, {name->begin, name->begin + entries[i].shape[0], shard, i, {}});
  }
}

void CheckpointReader::add_located(const PieceKey& key, LocatedPiece piece) {
  auto& pieces = pieces_[key];
  const auto at = std::upper_bound(pieces.begin(), pieces.end(), piece,
                                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  pieces.insert(at, std::move(piece));
}

void CheckpointReader::add_piece(const std::string& parameter, const std::string& state, int64_t begin,
                                 const at::Tensor& values) {
  add_located({parameter, state}, {begin, begin + values.numel(), 0, 0, values});
}

void CheckpointReader::verify(Shard& shard) {
  if (shard.verified) return;
  require_hash(path_, shard.listed, *shard.file->file());
  shard.verified = true;
}

CheckpointReader::Shard* CheckpointReader::shard_named(const std::string& file) {
  for (auto& shard : shards_) {
    if (shard.listed.name == file) return &shard;
  }
  return nullptr;
}

bool CheckpointReader::is_complete() const {
  return std::all_of(shards_.begin(), shards_.end(), [](const auto& shard) { return shard.file != nullptr; });
}

bool CheckpointReader::has_shard(const std::string& file) const {
  return std::any_of(shards_.begin(), shards_.end(),
                     [&](const auto& shard) { return shard.listed.name == file && shard.file; });
}

const SafetensorsFile& CheckpointReader::verified_shard(const std::string& file) {
  Shard* shard = shard_named(file);
  DSL_CHECK(shard && shard->file, "the shard is on this host: " + file);
  verify(*shard);
  return *shard->file;
}

const SavedTensor* CheckpointReader::find(const std::string& parameter) const {
  const auto found = parameters_.find(parameter);
  return found == parameters_.end() ? nullptr : &manifest_.metadata.parameters[found->second];
}

bool CheckpointReader::has(const std::string& parameter, const std::string& state) const {
  return pieces_.count({parameter, state}) > 0;
}

const CheckpointReader::LocatedPiece* CheckpointReader::furthest_piece_at(const std::string& parameter,
                                                                          const std::string& state,
                                                                          int64_t element) const {
  const auto found = pieces_.find({parameter, state});
  const LocatedPiece* best = nullptr;  // of the pieces that hold the element, the one that extends furthest
  if (found == pieces_.end()) return best;
  for (const auto& piece : found->second) {
    if (piece.begin > element) break;
    if (piece.end > element && (!best || piece.end > best->end)) best = &piece;
  }
  return best;
}

std::vector<MissingPiece> CheckpointReader::missing(const std::string& parameter, const std::string& state,
                                                    int64_t begin, int64_t end) const {
  std::vector<MissingPiece> out;
  const auto found = pieces_.find({parameter, state});
  while (begin < end) {
    if (const LocatedPiece* piece = furthest_piece_at(parameter, state, begin)) {
      begin = piece->end;
      continue;
    }
    int64_t next = end;
    if (found != pieces_.end()) {
      for (const auto& piece : found->second) {
        if (piece.begin > begin) next = std::min(next, piece.begin);
      }
    }
    out.push_back({parameter, state, begin, next});
    begin = next;
  }
  return out;
}

void CheckpointReader::read_into(const std::string& parameter, const std::string& state, int64_t begin,
                                 at::Tensor out) {
  DSL_CHECK(out.is_contiguous() && out.device().is_cpu(), "read_into needs contiguous host memory");
  at::Tensor flat = out.view({-1});
  const int64_t end = begin + flat.numel();
  for (int64_t done = begin; done < end;) {
    const LocatedPiece* piece = furthest_piece_at(parameter, state, done);
    if (!piece) {
      const SavedTensor* saved = find(parameter);
      const bool is_moment = saved && state != weight_state(*saved);
      refuse(fmt::format("the checkpoint '{}' has no '{}' of parameter '{}' for elements {} to {}{}", path_, state,
                         parameter, done, end - 1,
                         is_moment ? ". Was it saved with another optimizer? --resume PATH with checkpoint.load."
                                     "optimizer_states false starts with fresh moments"
                                   : ""));
    }
    const int64_t count = std::min(piece->end, end) - done;
    flat.narrow(0, done - begin, count).copy_(values_of(*piece).narrow(0, done - piece->begin, count));
    done += count;
  }
}

at::Tensor CheckpointReader::values_of(const LocatedPiece& piece) {
  if (piece.received.defined()) return piece.received;
  Shard& shard = shards_[piece.shard];
  verify(shard);
  return shard.file->tensor(shard.file->entries()[piece.entry]);
}

void CheckpointReader::drop_pages() const {
  for (const auto& shard : shards_) {
    if (shard.file) shard.file->file()->drop_pages();
  }
}

std::optional<std::string> CheckpointReader::rng_state(int rank, int world_size) {
  if (world_size != manifest_.world_size || rank < 0 || rank >= world_size) return std::nullopt;
  if (const auto received = received_rng_.find(rank); received != received_rng_.end()) return received->second;
  const Shard* shard = shard_named(shard_name(rank));
  if (!shard || !shard->file) return std::nullopt;
  const SafetensorsFile& file = verified_shard(shard->listed.name);
  const SafetensorsEntry* entry = file.find(kRngName);
  if (!entry) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(file.file()->data()) + entry->begin, entry->end - entry->begin);
}

std::optional<std::string> CheckpointReader::skeleton() {
  if (!skeleton_) return std::nullopt;
  const std::string path = path_ + "/" + skeleton_->name;
  require_hash(path_, *skeleton_, *MappedFile::open(path, kWhat));
  return path;
}

}  // namespace dslaunch::runtime
