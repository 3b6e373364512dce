#include "launch/run_folder.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/writable_folder.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFiles[] = {"metrics.jsonl", "config.resolved.json", "checkpoints", "logs"};

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot use the run folder {}: {}; choose another with --run_dir", folder, why));
}

void check_writable(const std::string& folder) {
  if (const std::string why = why_not_writable(folder); !why.empty()) refuse(folder, why);
}

}  // namespace

bool holds_run(const std::string& folder) {
  std::error_code ignored;
  fs::path at(folder);
  bool has_checkpoints = fs::is_directory(at / "checkpoints", ignored) && !fs::is_empty(at / "checkpoints", ignored);
  return (fs::is_regular_file(at / "metrics.jsonl", ignored) && !fs::is_empty(at / "metrics.jsonl", ignored)) ||
         has_checkpoints;
}

void check_run_folder(const std::string& folder, EarlierRun earlier) {
  check_writable(folder);
  if (earlier != EarlierRun::kRefuse || !holds_run(folder)) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("{} holds a run already: --resume auto goes on with it, --overwrite discards it, another "
                              "--run_dir leaves it alone",
                              folder));
}

FolderLock prepare_run_folder(const std::string& folder, EarlierRun earlier, const std::string& owner) {
  check_writable(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(folder, error.message());
  FolderLock lock = FolderLock::take_run_folder(folder, owner);
  check_run_folder(folder, earlier);
  if (earlier != EarlierRun::kDiscard) return lock;
  for (const char* name : kRunFiles) {
    fs::remove_all(fs::path(folder) / name, error);
    if (error) refuse(folder, fmt::format("{} cannot be removed: {}", name, error.message()));
  }
  return lock;
}

}  // namespace dslaunch::launch
