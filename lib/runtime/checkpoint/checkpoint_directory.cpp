#include "runtime/checkpoint/checkpoint_directory.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/unshare_file.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime {
namespace {

namespace fs = std::filesystem;

// Error codes for failed creation: a full disk is an I/O error (74), everything else is 73.
SystemError cannot_create(const std::string& path, const std::error_code& error) {
  const bool full = error.value() == ENOSPC || error.value() == EDQUOT;
  return {"create checkpoint directory", "'" + path + "'", error.value(),
          full ? ExitCode::kIoError : ExitCode::kCannotCreate};
}

std::string temporary_of(const std::string& dir, const char* name) {
  return dir + "/" + name + kWriting;
}

// Writes the new content of `latest` or `best` to a temporary file, to be renamed.
void write_temporary(const std::string& dir, const char* name, const std::string& text) {
  const std::string temporary = temporary_of(dir, name);
  try {
    unshare_file(temporary);
    OutputFile pointer(temporary);
    pointer.write(text);
    pointer.finish(/*sync=*/true);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void write_temporary_latest(const std::string& dir, int64_t step) {
  write_temporary(dir, kLatestName, step_name(step) + "\n");
}

void rename_temporary(const std::string& dir, const char* name) {
  const std::string target = dir + "/" + name, temporary = temporary_of(dir, name);
  if (::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw SystemError("rename to", "'" + target + "'", error);
  }
  sync_directory(dir);
}

void remove_temporaries(const std::string& dir) {
  for (const char* name : {kLatestName, kBestName}) ::unlink(temporary_of(dir, name).c_str());
}

// Renames first, so that a kill midway never leaves half a checkpoint under a name that counts. `target`: the
// checkpoint's own name, if it is stored under another one.
void remove_checkpoint(const std::string& path, const std::string& target) {
  std::error_code error;
  fs::rename(path, target + kRemoving, error);
  if (!error) fs::remove_all(target + kRemoving, error);
  if (error) log::warning("cannot remove the old checkpoint '{}': {}", path, error.message());
}

void remove_leftovers(const std::string& dir) {
  remove_temporaries(dir);
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const fs::path path = it->path();
    if (path.extension() != kWriting && path.extension() != kRemoving && path.extension() != kReplaced) continue;
    std::error_code ignored;
    if (usable_replaced_step(path)) {
      const fs::path original = path.parent_path() / path.stem();
      if (fs::is_directory(original, ignored)) remove_checkpoint(original, original);
      fs::rename(path, original, ignored);
    } else if (step_of(path.stem())) {
      fs::remove_all(path, ignored);
    }
  }
}

}  // namespace

std::string writing_directory(const std::string& dir, int64_t step) {
  return dir + "/" + step_name(step) + kWriting;
}

CheckpointDirectory::CheckpointDirectory(std::string dir, int64_t step)
    : dir_(std::move(dir)), step_(step), path_(writing_directory(dir_, step)), target_(dir_ + "/" + step_name(step)) {
  std::error_code error;
  fs::create_directories(dir_, error);
  if (error) throw cannot_create(dir_, error);
  remove_leftovers(dir_);
  fs::create_directory(path_, error);
  if (error) throw cannot_create(path_, error);
}

CheckpointDirectory::~CheckpointDirectory() {
  std::error_code ignored;
  if (published_) return;
  fs::remove_all(path_, ignored);
  remove_temporaries(dir_);
}

CheckpointFile CheckpointDirectory::add_skeleton(const std::string& file) {
  const auto source = MappedFile::open(file, "model file");
  OutputFile out(path_ + "/" + kSkeletonName);
  out.write(source->data(), source->size());
  out.finish(/*sync=*/true);
  return {kSkeletonName, source->size(), content_hash(source->data(), source->size())};
}

void CheckpointDirectory::seal(const Manifest& manifest, const std::string& best) {
  OutputFile file(path_ + "/" + kManifestName);
  file.write(to_json(manifest));
  file.finish(/*sync=*/true);
  sync_directory(path_);
  write_temporary_latest(dir_, step_);
  has_new_best_ = !best.empty();
  if (has_new_best_) write_temporary(dir_, kBestName, best);
}

void CheckpointDirectory::publish() {
  std::string replaced;
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) throw SystemError("rename checkpoint to", "'" + target_ + "'");
    replaced = replace_target();
  }
  published_ = true;
  const char* pointer = kLatestName;
  try {
    sync_directory(dir_);
    // Not earlier: a power failure may undo a rename that was not flushed, and then this one counts.
    if (!replaced.empty()) remove_checkpoint(replaced, target_);
    rename_temporary(dir_, pointer);
    pointer = kBestName;
    if (has_new_best_) rename_temporary(dir_, pointer);
  } catch (const Error& error) {
    remove_temporaries(dir_);
    throw Error(error.code(),
                fmt::format("'{}' is complete, but '{}' does not point to it: {}", target_, pointer, error.what()));
  }
}

// The same step was saved before (by a run that was resumed there): swaps the two atomically if the file system
// supports it. Returns the new location of the previous checkpoint.
std::string CheckpointDirectory::replace_target() const {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) == 0) return path_;
  std::string replaced = target_ + kReplaced;
  if (::rename(target_.c_str(), replaced.c_str()) != 0) throw SystemError("rename checkpoint to", "'" + replaced + "'");
  if (::rename(path_.c_str(), target_.c_str()) != 0) {
    const int error = errno;
    if (::rename(replaced.c_str(), target_.c_str()) != 0)
      log::warning("the checkpoint '{}' is now '{}'", target_, replaced);
    throw SystemError("rename checkpoint to", "'" + target_ + "'", error);
  }
  return replaced;
}

void point_latest(const std::string& dir, int64_t step) {
  write_temporary_latest(dir, step);
  rename_temporary(dir, kLatestName);
}

void write_best(const std::string& dir, const std::string& best) {
  write_temporary(dir, kBestName, best);
  rename_temporary(dir, kBestName);
}

void prune_checkpoints(const std::string& dir, int64_t step, int64_t keep) {
  if (keep <= 0) return;
  int64_t kept = 1;
  const auto best = best_steps(dir), steps = steps_in(dir);
  for (auto other = steps.rbegin(); other != steps.rend(); ++other) {
    if (*other >= step || ++kept <= keep || std::find(best.begin(), best.end(), *other) != best.end()) continue;
    const std::string old = dir + "/" + step_name(*other);
    remove_checkpoint(old, old);
  }
}

}  // namespace dslaunch::runtime
