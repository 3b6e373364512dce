#include "runtime/checkpoint/checkpoint_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/join_some.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/parallel_for_each.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;

constexpr char kWhat[] = "checkpoint file";
constexpr size_t kHashingThreads = 4;

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

std::string damaged(const std::string& directory, const std::string& fault) {
  return fmt::format("the checkpoint '{}' is damaged: {}", directory, fault);
}

std::string in_parts(const FoundCheckpoint& found) {
  return fmt::format(
      "the checkpoint '{}' was saved with use_node_local_storage, and the files of other hosts are not on this host: "
      "{}. Copy the checkpoint's directories of all hosts into one directory (their files have different names), or "
      "read it in a job on these hosts",
      found.path, describe_by_host(found.elsewhere));
}

constexpr char kAdvice[] = "; use another checkpoint";

// Why a checkpoint cannot be read here: what the log says when another one is read, and the error when none is; empty:
// its save did not finish, which other errors explain better.
struct Fault {
  std::string text, refusal;
};

// As far as names and sizes of files show it.
std::optional<Fault> fault_of(const FoundCheckpoint& found) {
  if (!found.loadable.ok()) {
    return Fault{fmt::format("'{}': {}", found.path, found.loadable.error()),
                 found.has_manifest ? damaged(found.path, found.loadable.error()) + kAdvice : ""};
  }
  if (found.elsewhere.empty()) return std::nullopt;
  return Fault{fmt::format("'{}': files of other hosts are missing", found.path), in_parts(found)};
}

// Why there is none to read, where none of those found is damaged or in parts.
[[noreturn]] void refuse_missing(const std::string& path, const std::vector<std::string>& skipped) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("no checkpoint at '{}': {}{}", path,
                                fs::exists(path, ignored) ? "expected a directory, got a file" : "no such directory",
                                did_you_mean_file(path)));
  }
  if (skipped.empty()) {
    throw UserError(ExitCode::kNoInput, fmt::format("'{}' has no complete checkpoint (no directory step_N with a {})",
                                                    path, kManifestName));
  }
  throw UserError(ExitCode::kNoInput,
                  fmt::format("'{}' has no complete checkpoint: {}", path, join_some(skipped, 3, "; ")));
}

struct DroppedCheck {};

// Throws DroppedCheck as soon as `is_dropped`, which may be null.
void require_hash(const std::string& directory, const CheckpointFile& listed, const MappedFile& file,
                  const std::atomic<bool>* is_dropped = nullptr) {
  ContentHash hashing;
  // Each part is freed after hashing: a shard may be larger than the memory.
  read_through({file.data(), file.size()}, [&](std::span<const uint8_t> part) {
    if (is_dropped != nullptr && *is_dropped) throw DroppedCheck();
    hashing.update(part.data(), part.size());
    file.drop_pages(static_cast<size_t>(part.data() - file.data()), part.size());
  });
  const std::string hash = hashing.hex();
  if (hash != listed.xxh3_128) {
    throw DamagedCheckpoint(damaged(
        directory, fmt::format("{} has the hash {}, its manifest says {}", listed.name, hash, listed.xxh3_128)));
  }
}

// Which elements of the parameter the tensor of that name and shape holds; empty if it does not fit the parameter.
std::optional<SliceRange> range_of(const PieceName& name, c10::IntArrayRef shape, c10::IntArrayRef parameter_shape) {
  if (shape.size() != 1 || (name.slice && !fits(*name.slice, parameter_shape))) return std::nullopt;
  const int64_t numel = SliceLayout(parameter_shape, name.slice).numel();
  if (shape[0] > numel - name.begin) return std::nullopt;
  return SliceRange{name.slice, name.begin, name.begin + shape[0]};
}

// "element 7", "elements 2 to 4, 8 and 5 more ranges".
std::string describe_elements(const std::vector<Range>& ranges) {
  constexpr size_t kMaxNamed = 4;
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(ranges.size(), kMaxNamed); ++i) {
    const auto& [begin, end] = ranges[i];
    named.push_back(end - begin == 1 ? std::to_string(begin) : fmt::format("{} to {}", begin, end - 1));
  }
  const bool is_one = ranges.size() == 1 && ranges[0].size() == 1;
  const size_t more = ranges.size() - named.size();
  return fmt::format("element{} {}{}", is_one ? "" : "s", fmt::join(named, ", "),
                     more > 0 ? fmt::format(" and {} more ranges", more) : "");
}

// The copy's runs in a flat tensor, as rows; the first begins at element `first`.
at::Tensor runs_of(const at::Tensor& flat, int64_t first, int64_t stride, const PieceCopy& copy) {
  return flat.narrow(0, first, (copy.count - 1) * stride + copy.length)
      .as_strided({copy.count, copy.length}, {stride, 1});
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& given) {
  const std::string path = resolve_checkpoint_path(given);
  std::error_code ignored;
  const bool is_checkpoint = fs::exists(fs::path(path) / kManifestName, ignored);
  const auto found = is_checkpoint ? std::vector{inspect_checkpoint(path)} : survey_checkpoints(path);
  std::string refusal;  // of the newest one that was once complete
  std::vector<std::string> skipped;
  for (const auto& checkpoint : found) {
    auto fault = fault_of(checkpoint);
    if (!fault) {
      try {
        CheckpointReader reader(checkpoint.path, *checkpoint.manifest);
        reader.verify_files();
        *this = std::move(reader);
        for (const auto& line : skipped) log::warning("skipping a checkpoint: {}", line);
        return;
      } catch (const DamagedCheckpoint& error) {
        fault = Fault{error.what(), error.what() + std::string(kAdvice)};
      }
    }
    skipped.push_back(fault->text);
    if (refusal.empty()) refusal = fault->refusal;
  }
  if (!refusal.empty() && skipped.size() > 1) {
    refusal += fmt::format(" (of {} in '{}' none is usable)", skipped.size(), path);
  }
  if (!refusal.empty()) refuse(refusal);
  refuse_missing(path, skipped);
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
  require_no_overlaps();
}

void CheckpointReader::add_pieces(size_t shard) {
  const auto& entries = shards_[shard].file->entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].name == kRngName) continue;
    const auto name = parse_piece_name(entries[i].name);
    const SavedTensor* parameter = name ? find(name->parameter) : nullptr;
    const auto range = parameter ? range_of(*name, entries[i].shape, parameter->shape) : std::nullopt;
    if (!range) {
      throw DamagedCheckpoint(
          damaged(path_, fmt::format("{} has '{}', which does not match any parameter of the manifest",
                                     shards_[shard].listed.name, entries[i].name)));
    }
    add_located({name->parameter, name->state}, *range, {shard, i, {}});
  }
}

// Of several copies of a piece, the first is read.
void CheckpointReader::add_located(const PieceKey& key, const SliceRange& range, PieceSource source) {
  auto& [ranges, sources] = pieces_[key];
  if (std::find(ranges.begin(), ranges.end(), range) != ranges.end()) return;
  ranges.push_back(range);
  sources.push_back(std::move(source));
}

// Slices divide a parameter among ranks; slices that overlap are those of different divisions. Where they overlap
// without exceeding the parameter's size, elements are missing, and reading reports those.
void CheckpointReader::require_no_overlaps() const {
  for (const auto& [key, pieces] : pieces_) {
    const auto& [parameter, state] = key;
    bool has_slices = false;
    int64_t numel = 0;
    for (const auto& range : pieces.ranges) {
      has_slices |= range.slice.has_value();
      numel += range.numel();
    }
    if (!has_slices || numel <= find(parameter)->numel()) continue;
    throw DamagedCheckpoint(damaged(
        path_,
        fmt::format("slices of '{}' of parameter '{}' overlap: its pieces have {} elements, the parameter has {}",
                    state, parameter, numel, find(parameter)->numel())));
  }
}

void CheckpointReader::add_piece(const std::string& parameter, const std::string& state, const SliceRange& range,
                                 const at::Tensor& values) {
  add_located({parameter, state}, range, {0, 0, values});
}

void CheckpointReader::verify(Shard& shard) {
  if (shard.is_beside) finish_checks();
  if (shard.verified) return;
  require_hash(path_, shard.listed, *shard.file->file());
  shard.verified = true;
}

void CheckpointReader::verify_files() {
  const size_t num_threads = std::min(kHashingThreads, shards_.size());
  parallel_for_each(num_threads, [&](size_t thread) {
    for (size_t i = thread; i < shards_.size(); i += num_threads) verify(shards_[i]);
  });
  skeleton();
}

void CheckpointReader::check_beside(const std::optional<std::vector<std::string>>& share) {
  checks_beside_ = true;
  if (!share) return;
  for (auto& shard : shards_) shard.is_elsewhere = true;
  std::vector<std::vector<Shard*>> of_threads(kHashingThreads);
  size_t count = 0;
  for (const auto& name : *share) {
    Shard* shard = shard_named(name);
    if (shard == nullptr || !shard->file) continue;
    shard->is_elsewhere = false;
    if (!shard->verified) of_threads[count++ % kHashingThreads].push_back(shard);
  }
  for (const auto& shards : of_threads) {
    if (!shards.empty()) begin_check(shards);
  }
}

void CheckpointReader::begin_check(const std::vector<Shard*>& shards) {
  std::vector<std::pair<CheckpointFile, std::shared_ptr<const MappedFile>>> files;
  for (const Shard* shard : shards) files.emplace_back(shard->listed, shard->file->file());
  const auto check = [directory = path_, files = std::move(files), are_dropped = checks_.are_dropped] {
    for (const auto& [listed, file] : files) require_hash(directory, listed, *file, are_dropped.get());
  };
  try {
    checks_.running.push_back(std::async(std::launch::async, check));
  } catch (const std::system_error&) {  // the system refuses a thread
    check();
  }
  for (Shard* shard : shards) shard->is_beside = true;
}

void CheckpointReader::finish_checks() {
  for (auto& check : std::exchange(checks_.running, {})) {
    try {
      check.get();
    } catch (const DamagedCheckpoint&) {
      if (!damage_) damage_ = std::current_exception();
    }
  }
  if (damage_) std::rethrow_exception(damage_);
  for (auto& shard : shards_) shard.verified |= std::exchange(shard.is_beside, false);
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

ReadPlan CheckpointReader::plan(const PieceKey& key, const SliceRange& request) const {
  const SavedTensor* saved = find(key.first);
  const auto found = pieces_.find(key);
  if (saved && found != pieces_.end()) return plan_read(saved->shape, found->second.ranges, request);
  ReadPlan nothing;
  if (request.numel() > 0) nothing.gaps.push_back({request.begin, request.end});
  return nothing;
}

std::optional<MissingPiece> CheckpointReader::missing(const std::string& parameter, const std::string& state,
                                                      const SliceRange& range) const {
  const auto gaps = plan({parameter, state}, range).gaps;
  if (gaps.empty()) return std::nullopt;
  return MissingPiece{parameter, state, {range.slice, gaps.front().begin, gaps.back().end}};
}

void CheckpointReader::read_into(const std::string& parameter, const std::string& state, int64_t begin, at::Tensor out,
                                 const std::optional<Slice>& slice) {
  DSL_CHECK(out.is_contiguous() && out.device().is_cpu(), "read_into needs contiguous host memory");
  const PieceKey key{parameter, state};
  const SliceRange request{slice, begin, begin + out.numel()};
  const auto [copies, gaps] = plan(key, request);
  if (!gaps.empty()) refuse_gaps(key, request, gaps);
  const at::Tensor flat = out.view({-1});
  for (const auto& copy : copies) {
    const at::Tensor from = values_of(pieces_.at(key).sources[copy.piece]);
    runs_of(flat, copy.to, copy.to_stride, copy).copy_(runs_of(from, copy.from, copy.from_stride, copy));
  }
}

void CheckpointReader::refuse_gaps(const PieceKey& key, const SliceRange& request,
                                   const std::vector<Range>& gaps) const {
  const auto& [parameter, state] = key;
  const SavedTensor* saved = find(parameter);
  const bool is_moment = saved && state != weight_state(*saved);
  refuse(fmt::format("the checkpoint '{}' has no '{}' of {}parameter '{}' for {}{}", path_, state,
                     request.slice ? fmt::format("slice {} of ", slice_text(*request.slice)) : "", parameter,
                     describe_elements(gaps),
                     is_moment ? ". Was it saved with another optimizer? --resume PATH with checkpoint.load."
                                 "optimizer_states false starts with fresh moments"
                               : ""));
}

at::Tensor CheckpointReader::values_of(const PieceSource& piece) {
  if (piece.received.defined()) return piece.received;
  Shard& shard = shards_[piece.shard];
  if (!checks_beside_) {
    verify(shard);
  } else if (!shard.verified && !shard.is_beside && !shard.is_elsewhere) {
    begin_check({&shard});
  }
  return shard.file->tensor(shard.file->entries()[piece.entry]);
}

void CheckpointReader::drop_pages() const {
  for (const auto& shard : shards_) {
    if (shard.file) shard.file->file()->drop_pages();
  }
}

std::optional<std::string> CheckpointReader::rng_state(int saved_rank) {
  if (const auto received = received_rng_.find(saved_rank); received != received_rng_.end()) return received->second;
  const Shard* shard = shard_named(shard_name(saved_rank));
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
