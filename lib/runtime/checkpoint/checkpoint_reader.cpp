#include "runtime/checkpoint/checkpoint_reader.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
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

std::string resolve(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(fs::path(path) / kManifestName, ignored)) return path;
  if (const auto newest = newest_checkpoint(path)) return *newest;
  const bool is_folder = fs::is_directory(path, ignored);
  const bool in_run = is_folder && newest_checkpoint(path + "/checkpoints");
  throw UserError(ExitCode::kNoInput,
                  is_folder
                      ? fmt::format("'{}' holds no complete checkpoint (no step_N folder with a {}){}", path,
                                    kManifestName, in_run ? fmt::format("; did you mean '{}/checkpoints'?", path) : "")
                      : fmt::format("no checkpoint at '{}': there is no such folder", path));
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  const auto file = MappedFile::open(path, kWhat);
  return manifest_from_json({reinterpret_cast<const char*>(file->data()), file->size()}, path);
}

void require_size(const std::string& folder, const CheckpointFile& listed) {
  const std::string path = folder + "/" + listed.name;
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error)
    refuse(fmt::format("the checkpoint '{}' is damaged: {} cannot be read: {}", folder, listed.name, error.message()));
  if (bytes != listed.bytes) {
    refuse(fmt::format("the checkpoint '{}' is damaged: {} has {} bytes, its manifest says {}; use another checkpoint",
                       folder, listed.name, bytes, listed.bytes));
  }
}

void require_hash(const std::string& folder, const CheckpointFile& listed, const MappedFile& file) {
  file.advise_sequential();
  ContentHash hashing;
  // Part by part, and each given back: a shard may be larger than the memory.
  for (size_t at = 0; at < file.size(); at += kHashedBytes) {
    hashing.update(file.data() + at, std::min(kHashedBytes, file.size() - at));
    file.forget(at, kHashedBytes);
  }
  const std::string hash = hashing.hex();
  if (hash != listed.xxh3_128) {
    refuse(
        fmt::format("the checkpoint '{}' is damaged: {} has the hash {}, its manifest says {}; use another checkpoint",
                    folder, listed.name, hash, listed.xxh3_128));
  }
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& path) : path_(resolve(path)), manifest_(read_manifest(path_)) {
  const auto& parameters = manifest_.metadata.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) parameters_[parameters[i].name] = i;
  open_files();
}

void CheckpointReader::open_files() {
  for (const auto& listed : manifest_.files) {
    require_size(path_, listed);
    if (listed.name == kSkeletonName) {
      skeleton_ = listed;
      continue;
    }
    shards_.push_back({listed, std::make_unique<SafetensorsFile>(path_ + "/" + listed.name, kWhat), false});
    add_pieces(shards_.size() - 1);
  }
  if (shards_.size() != static_cast<size_t>(manifest_.world_size)) {
    refuse(fmt::format("the checkpoint '{}' is damaged: its manifest lists {} shards for {} ranks", path_,
                       shards_.size(), manifest_.world_size));
  }
  for (auto& [key, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
}

void CheckpointReader::add_pieces(size_t shard) {
  const auto& entries = shards_[shard].file->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == kRngName) continue;
    const auto name = parse_piece_name(entries[i].name);
    const SavedTensor* parameter = name ? find(name->parameter) : nullptr;
    if (!parameter || entries[i].shape.size() != 1 || entries[i].shape[0] > parameter->numel() - name->begin) {
      refuse(fmt::format("the checkpoint '{}' is damaged: {} holds '{}', which fits no parameter of the manifest",
                         path_, shards_[shard].listed.name, entries[i].name));
    }
    pieces_[{name->parameter, name->state}].push_back({name->begin, name->begin + entries[i].shape[0], shard, i});
  }
}

void CheckpointReader::verify(Shard& shard) {
  if (shard.verified) return;
  require_hash(path_, shard.listed, *shard.file->file());
  shard.verified = true;
}

const SavedTensor* CheckpointReader::find(const std::string& parameter) const {
  const auto found = parameters_.find(parameter);
  return found == parameters_.end() ? nullptr : &manifest_.metadata.parameters[found->second];
}

void CheckpointReader::require_match(const std::vector<SavedTensor>& model) const {
  std::set<std::string> wanted;
  for (const auto& tensor : model) {
    wanted.insert(tensor.name);
    const SavedTensor* saved = find(tensor.name);
    if (!saved) {
      std::vector<std::string> names;
      for (const auto& [name, index] : parameters_) names.push_back(name);
      refuse(fmt::format("the checkpoint '{}' does not fit the model: it has no '{}'{}", path_, tensor.name,
                         did_you_mean(tensor.name, names)));
    }
    if (saved->shape != tensor.shape) {
      refuse(
          fmt::format("the checkpoint '{}' does not fit the model: '{}' has the shape ({}) there and ({}) in the model",
                      path_, tensor.name, fmt::join(saved->shape, ", "), fmt::join(tensor.shape, ", ")));
    }
  }
  for (const auto& saved : manifest_.metadata.parameters) {
    if (!wanted.count(saved.name)) {
      refuse(fmt::format("the checkpoint '{}' does not fit the model: the model has no '{}'", path_, saved.name));
    }
  }
}

bool CheckpointReader::has(const std::string& parameter, const std::string& state) const {
  return pieces_.count({parameter, state}) > 0;
}

void CheckpointReader::read_into(const std::string& parameter, const std::string& state, int64_t begin,
                                 at::Tensor out) {
  DSL_CHECK(out.is_contiguous() && out.device().is_cpu(), "read_into needs contiguous host memory");
  at::Tensor flat = out.view({-1});
  const int64_t end = begin + flat.numel();
  static const std::vector<PlacedPiece> kNone;
  const auto found = pieces_.find({parameter, state});
  const auto& pieces = found == pieces_.end() ? kNone : found->second;
  int64_t done = begin;
  while (done < end) {
    const PlacedPiece* best = nullptr;  // of the pieces that hold `done`, the one that reaches furthest
    for (const auto& piece : pieces) {
      if (piece.begin > done) break;
      if (piece.end > done && (!best || piece.end > best->end)) best = &piece;
    }
    if (!best) {
      refuse(fmt::format("the checkpoint '{}' lacks '{}' of parameter '{}', elements {} to {}", path_, state, parameter,
                         done, end - 1));
    }
    Shard& shard = shards_[best->shard];
    verify(shard);
    const int64_t count = std::min(best->end, end) - done;
    const at::Tensor source = shard.file->tensor(shard.file->entries()[best->entry]);
    flat.narrow(0, done - begin, count).copy_(source.narrow(0, done - best->begin, count));
    done += count;
  }
}

void CheckpointReader::forget_pages() const {
  for (const auto& shard : shards_) {
    if (shard.file) shard.file->file()->forget();
  }
}

std::optional<std::string> CheckpointReader::rng_state(int rank, int world_size) {
  if (world_size != manifest_.world_size || rank < 0 || rank >= world_size) return std::nullopt;
  for (auto& shard : shards_) {
    if (shard.listed.name != shard_name(rank)) continue;
    const SafetensorsEntry* entry = shard.file->find(kRngName);
    if (!entry) return std::nullopt;
    verify(shard);
    return std::string(reinterpret_cast<const char*>(shard.file->file()->data()) + entry->begin,
                       entry->end - entry->begin);
  }
  return std::nullopt;
}

std::optional<std::string> CheckpointReader::skeleton() {
  if (!skeleton_) return std::nullopt;
  const std::string path = path_ + "/" + skeleton_->name;
  require_hash(path_, *skeleton_, *MappedFile::open(path, kWhat));
  return path;
}

}  // namespace dslaunch::runtime
