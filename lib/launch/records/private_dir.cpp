#include "launch/records/private_dir.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/records/job_id.hpp"
#include "launch/records/private_files.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "dslaunch-", kRandomPart = "-XXXXXX";

std::string prefix_of(const std::string& job_id) {
  return std::string(kPrefix) + job_id + "-";
}

// The creator of the directory holds a lock on this descriptor while it lives; so does a process that removes it.
UniqueFd open_dir(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

[[noreturn]] void refuse(const std::string& dir, const std::string& why) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot keep the job's files in {}: {}; set TMPDIR to another directory", dir, why));
}

// NUMBER.json, NUMBER-NAME, and either with the suffix that it has while it is being written.
bool may_be_ours(const std::string& name) {
  const size_t end = name.find_first_not_of("0123456789");
  return end != 0 && end != std::string::npos && (name[end] == '-' || name.compare(end, 5, ".json") == 0);
}

bool holds_our_files_only(const std::string& path) {
  std::error_code error;
  fs::directory_iterator entry(path, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (!may_be_ours(entry->path().filename().string()) || !entry->is_regular_file(unknown)) return false;
  }
  return !error;
}

// False: another process took the directory for abandoned before the lock was held.
bool holds(const UniqueFd& dir, const std::string& path) {
  if (!dir.valid()) return errno != ENOENT;
  if (::flock(dir.get(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat found {};
  return ::lstat(path.c_str(), &found) == 0;
}

void remove_if_abandoned(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::geteuid()) return;
  if (!holds_our_files_only(path.string())) return;
  UniqueFd dir = open_dir(path.string());
  if (!dir.valid() || ::flock(dir.get(), LOCK_EX | LOCK_NB) != 0) return;
  std::error_code ignored;
  fs::remove_all(path, ignored);  // a creator that is about to lock it notices the removal once it has the lock
}

}  // namespace

PrivateDir::PrivateDir(const std::string& job_id) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) refuse("TMPDIR", error.message());
  do {
    path_ = (parent / (prefix_of(job_id) + "XXXXXX")).string();
    if (::mkdtemp(path_.data()) == nullptr) refuse(parent.string(), describe_errno(errno));
    lock_ = open_dir(path_);
  } while (!holds(lock_, path_));
}

PrivateDir::~PrivateDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void PrivateDir::write(const std::string& name, const std::string& content) const {
  try {
    write_private_file(path_ + "/" + name, content);
  } catch (const SystemError& error) {
    refuse(path_, describe_errno(error.error_number()));
  }
}

std::optional<std::string> job_of_private_dir(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() <= kPrefix.size() + kRandomPart.size()) return std::nullopt;
  size_t end = name.size() - kRandomPart.size();
  if (name[end] != '-') return std::nullopt;
  std::string job = name.substr(kPrefix.size(), end - kPrefix.size());
  return is_job_id(job) ? std::optional(std::move(job)) : std::nullopt;
}

bool private_dir_is_abandoned(const std::string& path) {
  if (!holds_our_files_only(path)) return false;
  UniqueFd dir = open_dir(path);
  return dir.valid() && ::flock(dir.get(), LOCK_EX | LOCK_NB) == 0;
}

void remove_abandoned_private_dirs() {
  std::error_code error;
  std::vector<fs::path> candidates;
  fs::directory_iterator entry(fs::temp_directory_path(error), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (job_of_private_dir(entry->path().filename().string())) candidates.push_back(entry->path());
  }
  for (const auto& path : candidates) remove_if_abandoned(path);
}

void remove_private_dirs(const std::string& job_id) {
  std::error_code error;
  std::vector<fs::path> left;
  fs::directory_iterator entry(fs::temp_directory_path(error), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix_of(job_id))) left.push_back(entry->path());
  }
  for (const auto& dir : left) fs::remove_all(dir, error);
}

}  // namespace dslaunch::launch
