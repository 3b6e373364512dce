#include "launch/plan/run_folder.hpp"

#include <filesystem>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/writable_folder.hpp"
#include "launch/plan/job_id.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunFiles[] = {"metrics.jsonl", "config.resolved.json"};
constexpr const char kDigits[] = "0123456789";

[[noreturn]] void refuse(const std::string& folder, const std::string& why) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot use the run folder {}: {}; choose another with --run_dir", folder, why));
}

void check_writable(const std::string& folder) {
  if (const std::string why = why_not_writable(folder); !why.empty()) refuse(folder, why);
}

// step_00000050, also one that is being written, removed or replaced (docs/checkpoint_format.md).
bool is_checkpoint(const std::string& name) {
  if (name == "latest" || name == "latest.tmp") return true;
  if (!name.starts_with("step_") || name.size() == 5) return false;
  const size_t end = name.find_first_not_of(kDigits, 5);
  const std::string ending = end == std::string::npos ? "" : name.substr(end);
  return end != 5 && (ending.empty() || ending == ".tmp" || ending == ".removing" || ending == ".replaced");
}

// HOST.RANK.log, and the folder JOB of --tee and --redirects.
bool is_log(const fs::path& path) {
  if (is_job_id(path.filename().string())) return true;
  const std::string rank = path.stem().extension();  // ".3" of "node1.3.log"
  return path.extension() == ".log" && rank.size() > 1 && rank.find_first_not_of(kDigits, 1) == std::string::npos;
}

// What somebody else has put there stays, and so does a link to a folder elsewhere.
void clear(const fs::path& folder, const std::function<bool(const fs::path&)>& is_ours, std::error_code& error) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    fs::remove(folder, error);
    return;
  }
  std::vector<fs::path> ours;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_ours(at->path())) ours.push_back(at->path());
  }
  for (size_t i = 0; !error && i < ours.size(); ++i) fs::remove_all(ours[i], error);
  if (!error && !fs::is_symlink(folder, ignored) && fs::is_empty(folder, ignored)) fs::remove(folder, error);
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

FolderLock prepare_run_folder(const std::string& folder, EarlierRun earlier, const std::string& job_id) {
  check_writable(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(folder, error.message());
  FolderLock lock = FolderLock::take_run_folder(folder, FolderLock::launcher_of(job_id));
  check_run_folder(folder, earlier);
  if (earlier != EarlierRun::kDiscard) return lock;
  const auto check = [&](const char* name) {
    if (error) refuse(folder, fmt::format("{} cannot be removed: {}", name, error.message()));
  };
  for (const char* name : kRunFiles) {
    fs::remove_all(fs::path(folder) / name, error);
    check(name);
  }
  clear(
      fs::path(folder) / "checkpoints", [](const fs::path& path) { return is_checkpoint(path.filename()); }, error);
  check("checkpoints");
  clear(fs::path(folder) / "logs", is_log, error);
  check("logs");
  return lock;
}

}  // namespace dslaunch::launch
