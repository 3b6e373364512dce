#include "runtime/checkpoint/checkpoint_survey.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;

bool is_not_found(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

// A path whose status the storage cannot report counts as present, so that it is inspected and named.
bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) || (error && !is_not_found(error));
}

void read_manifest(FoundCheckpoint& found) {
  const std::string path = found.path + "/" + kManifestName;
  found.has_manifest = exists(path);
  try {
    const auto file = MappedFile::open(path, "checkpoint file");
    found.manifest_text.assign(reinterpret_cast<const char*>(file->data()), file->size());
    found.manifest = manifest_from_json(found.manifest_text, path);
  } catch (const UserError& error) {
    found.loadable = Failure{found.has_manifest ? error.what() : fmt::format("it has no {}", kManifestName)};
  }
}

// Whether the file is as the manifest lists it.
Result<> check_file(const std::string& directory, const CheckpointFile& listed) {
  std::error_code error;
  const auto bytes = fs::file_size(directory + "/" + listed.name, error);
  if (error) return Failure{fmt::format("{} cannot be read: {}", listed.name, error.message())};
  if (bytes == listed.bytes) return {};
  return Failure{fmt::format("{} has {} bytes, its manifest says {}", listed.name, bytes, listed.bytes)};
}

void inspect_files(FoundCheckpoint& found) {
  size_t num_shards = 0;
  for (const auto& listed : found.manifest->files) {
    if (is_shard_name(listed.name)) ++num_shards;
    if (!listed.host.empty() && !exists(found.path + "/" + listed.name)) {
      found.elsewhere.push_back(listed);
    } else if (found.loadable.ok()) {
      found.loadable = check_file(found.path, listed);
    }
  }
  if (found.loadable.ok() && num_shards != static_cast<size_t>(found.manifest->world_size)) {
    found.loadable =
        Failure{fmt::format("its manifest lists {} shards for {} ranks", num_shards, found.manifest->world_size)};
  }
}

// Only if it is certain: a storage error is not a reason to put something else in a checkpoint's place.
bool has_lost_files(const FoundCheckpoint& found) {
  if (!found.manifest) return false;
  const auto& files = found.manifest->files;
  return std::any_of(files.begin(), files.end(), [&](const CheckpointFile& listed) {
    std::error_code error;
    const auto bytes = fs::file_size(found.path + "/" + listed.name, error);
    return error ? is_not_found(error) && listed.host.empty() : bytes != listed.bytes;
  });
}

// "step_00000020.tmp"; nothing for other names.
std::optional<FoundCheckpoint> leftover(const fs::path& path) {
  const bool writing = path.extension() == kWriting;
  if (!writing && path.extension() != kRemoving && path.extension() != kReplaced) return std::nullopt;
  FoundCheckpoint found{.path = path, .step = step_of(path.stem()), .is_leftover = true};
  if (!found.step) return std::nullopt;
  found.loadable = Failure{writing ? "its save did not finish" : "its removal did not finish"};
  return found;
}

}  // namespace

FoundCheckpoint inspect_checkpoint(const std::string& path) {
  FoundCheckpoint found{.path = path, .step = step_of(fs::path(path).filename())};
  read_manifest(found);
  if (found.manifest) inspect_files(found);
  return found;
}

std::optional<int64_t> usable_replaced_step(const std::string& path) {
  if (const auto step = replaced_step(path)) return step;
  const fs::path directory(path);
  const auto step = directory.extension() == kReplaced ? step_of(directory.stem()) : std::nullopt;
  if (!step || !has_lost_files(inspect_checkpoint(directory.parent_path() / directory.stem()))) return std::nullopt;
  return inspect_checkpoint(path).loadable.ok() ? step : std::nullopt;
}

std::string directory_of_step(const std::string& dir, int64_t step) {
  const std::string directory = dir + "/" + step_name(step);
  return usable_replaced_step(directory + kReplaced) && exists(directory + kReplaced + "/" + kManifestName)
             ? directory + kReplaced
             : directory;
}

std::vector<FoundCheckpoint> survey_checkpoints(const std::string& dir) {
  std::vector<FoundCheckpoint> out;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored)) continue;
    if (step_of(it->path().filename())) {
      out.push_back(inspect_checkpoint(it->path()));
    } else if (const auto step = usable_replaced_step(it->path())) {
      out.push_back(inspect_checkpoint(it->path()));
      out.back().step = step;
    } else if (auto found = leftover(it->path())) {
      out.push_back(std::move(*found));
    }
  }
  // If this counted as an empty directory, a run of weeks would start from scratch.
  if (error && !is_not_found(error)) throw SystemError("look for checkpoints in", "'" + dir + "'", error.value());
  const auto latest = latest_step(dir);
  std::sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    return *a.step == *b.step ? a.path < b.path : is_preferred(*a.step, *b.step, latest);
  });
  return out;
}

bool is_preferred(int64_t step, int64_t other, std::optional<int64_t> latest) {
  const bool is_later = latest && step > *latest, other_is_later = latest && other > *latest;
  return is_later == other_is_later ? step > other : !is_later;
}

std::string describe_by_host(const std::vector<CheckpointFile>& files) {
  std::map<std::string, std::vector<std::string>> by_host;
  for (const auto& file : files) by_host[file.host].push_back(file.name);
  std::string out;
  for (auto& [host, names] : by_host) {
    const size_t more = names.size() > 4 ? names.size() - 3 : 0;
    if (more > 0) names.resize(3);
    out += fmt::format("{}{}{}{}", out.empty() ? "" : "; ", fmt::join(names, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "", host.empty() ? "" : " of " + host);
  }
  return out;
}

}  // namespace dslaunch::runtime
