#include "launch/run_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/overwritten_run.hpp"
#include "base/writable_folder.hpp"
#include "launch/job_id.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

// The run folder's own part on its way there or back. Where kOverwritten itself stands, all is set aside; else what is
// set aside goes back: so one that is killed on the way is made up for.
constexpr const char kMoving[] = ".overwritten.tmp";
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

bool is_step_file(const fs::path& path) {
  return is_checkpoint(path.filename());
}

// HOST.RANK.log, and the folder JOB of --tee and --redirects.
bool is_log(const fs::path& path) {
  if (is_job_id(path.filename().string())) return true;
  const std::string rank = path.stem().extension();  // ".3" of "node1.3.log"
  return path.extension() == ".log" && rank.size() > 1 && rank.find_first_not_of(kDigits, 1) == std::string::npos;
}

// Of what lies in the folder. A folder that is not there has nothing.
std::vector<fs::path> own_files(const fs::path& folder, const std::function<bool(const fs::path&)>& is_ours,
                                std::error_code& error) {
  std::vector<fs::path> ours;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return ours;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (is_ours(at->path())) ours.push_back(at->path());
  }
  return ours;
}

// Into a folder of the same file system, replacing what is there and is no folder with something in it.
void move_into(const fs::path& folder, const std::vector<fs::path>& files, std::error_code& error) {
  if (!error && !files.empty()) fs::create_directories(folder, error);
  for (const auto& file : files) {
    if (error) return;
    std::error_code ignored;
    const fs::path to = folder / file.filename();
    fs::remove(to, ignored);
    fs::rename(file, to, error);
  }
}

bool is_run_file(const fs::path& path) {
  return std::find(std::begin(kRunFiles), std::end(kRunFiles), path.filename()) != std::end(kRunFiles);
}

// A step's metrics or a whole checkpoint, not counting a run that is set aside.
bool has_begun(const fs::path& folder) {
  std::error_code ignored;
  const auto is_whole = [](const fs::path& path) { return is_step_file(path) && path.extension().empty(); };
  const fs::path metrics = folder / "metrics.jsonl";
  return (fs::is_regular_file(metrics, ignored) && !fs::is_empty(metrics, ignored)) ||
         !own_files(folder / "checkpoints", is_whole, ignored).empty();
}

bool is_anything(const fs::path& /*path*/) {
  return true;
}

// The earlier run's own files: what somebody else has put there stays, and so does a link to a folder elsewhere.
void set_aside(const fs::path& folder) {
  std::error_code error;
  const fs::path checkpoints = folder / "checkpoints";
  const auto steps = own_files(checkpoints, is_step_file, error);
  move_into(checkpoints / kOverwritten, steps, error);
  auto files = own_files(folder, is_run_file, error);
  if (std::error_code ignored; !fs::is_directory(checkpoints, ignored) && fs::exists(fs::symlink_status(checkpoints))) {
    files.push_back(checkpoints);  // a file, or a link to nothing
  }
  move_into(folder / kMoving, files, error);
  if (!error) fs::create_directory(folder / kMoving, error);
  if (!error) fs::rename(folder / kMoving, folder / kOverwritten, error);
  if (error) refuse(folder, fmt::format("the run in it cannot be set aside: {}", error.message()));
}

void put_back(const fs::path& folder, std::error_code& error) {
  std::error_code ignored;
  fs::rename(folder / kOverwritten, folder / kMoving, ignored);
  const fs::path checkpoints = folder / "checkpoints";
  for (const auto& [from, to] : {std::pair{checkpoints / kOverwritten, checkpoints}, {folder / kMoving, folder}}) {
    move_into(to, own_files(from, is_anything, error), error);
    fs::remove(from, ignored);
  }
}

// What is set aside goes back where no run has begun in its place, else it goes for good.
void settle(const fs::path& folder) {
  std::error_code error, ignored;
  if (fs::exists(folder / kOverwritten, ignored) && has_begun(folder)) {
    remove_overwritten(folder, error);
  } else {
    put_back(folder, error);
  }
  if (error) log::warning("the overwritten run in {}/{}: {}", folder.string(), kOverwritten, error.message());
}

void clear_logs(const fs::path& folder) {
  std::error_code error, ignored;
  for (const auto& log : own_files(folder, is_log, error)) {
    if (!error) fs::remove_all(log, error);
  }
  if (error) refuse(folder.parent_path(), fmt::format("logs cannot be removed: {}", error.message()));
  if (!fs::is_symlink(folder, ignored) && fs::is_empty(folder, ignored)) fs::remove(folder, ignored);
}

}  // namespace

bool holds_run(const std::string& folder) {
  std::error_code ignored;
  fs::path at(folder);
  bool has_checkpoints = fs::is_directory(at / "checkpoints", ignored) && !fs::is_empty(at / "checkpoints", ignored);
  return (fs::is_regular_file(at / "metrics.jsonl", ignored) && !fs::is_empty(at / "metrics.jsonl", ignored)) ||
         has_checkpoints || fs::exists(at / kOverwritten, ignored) || fs::exists(at / kMoving, ignored);
}

void check_run_folder(const std::string& folder, EarlierRun earlier) {
  check_writable(folder);
  if (earlier != EarlierRun::kRefuse || !holds_run(folder)) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("{} holds a run already: --resume auto goes on with it, --overwrite discards it, another "
                              "--run_dir leaves it alone",
                              folder));
}

RunFolder::RunFolder(const std::string& folder, EarlierRun earlier, const std::string& owner) : path_(folder) {
  check_writable(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) refuse(folder, error.message());
  lock_ = FolderLock::take_run_folder(folder, owner);
  settle(folder);  // of a launcher that was killed
  check_run_folder(folder, earlier);
  if (earlier != EarlierRun::kDiscard) return;
  try {
    set_aside(folder);
    clear_logs(fs::path(folder) / "logs");
  } catch (...) {
    settle(folder);
    throw;
  }
}

RunFolder::~RunFolder() {
  settle(path_);
}

}  // namespace dslaunch::launch
