#include "launch/plan/run_dir.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"
#include "base/writable_directory.hpp"
#include "launch/plan/run_record.hpp"
#include "launch/records/job_id.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExecRecord = "exec.json";
constexpr const char* kRunFiles[] = {"metrics.jsonl", "samples.jsonl",     "config.resolved.json",
                                     "events.jsonl",  "model_skeleton.pt", "launcher.jsonl",
                                     kRunRecord,      kExecRecord};
constexpr const char kDigits[] = "0123456789";

[[noreturn]] void refuse(const std::string& dir, const std::string& why) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot use the run directory {}: {}; choose another with --run_dir", dir, why));
}

void require_writable(const std::string& dir) {
  if (const Result<> writable = check_writable(dir); !writable.ok()) refuse(dir, writable.error());
}

// step_00000050, also while it is being written, removed or replaced (docs/checkpoint_format.md).
bool is_checkpoint(const std::string& name) {
  for (const char* pointer : {"latest", "best"}) {
    if (name == pointer || name == std::string(pointer) + ".tmp") return true;
  }
  if (!name.starts_with("step_") || name.size() == 5) return false;
  const size_t end = name.find_first_not_of(kDigits, 5);
  const std::string ending = end == std::string::npos ? "" : name.substr(end);
  return end != 5 && (ending.empty() || ending == ".tmp" || ending == ".removing" || ending == ".replaced");
}

bool is_rank_log(const fs::path& path) {
  const std::string rank = path.stem().extension();  // ".3" of "node1.3.log"
  return path.extension() == ".log" && rank.size() > 1 && rank.find_first_not_of(kDigits, 1) == std::string::npos;
}

// HOST.RANK.log, and the directory JOB of --tee and --redirects.
bool is_log(const fs::path& path) {
  return is_job_id(path.filename().string()) || is_rank_log(path);
}

// Keeps files that somebody else has put there, and a link to a directory elsewhere.
void clear(const fs::path& dir, const std::function<bool(const fs::path&)>& is_ours, std::error_code& error) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) {
    fs::remove(dir, error);
    return;
  }
  std::vector<fs::path> ours;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    if (is_ours(at->path())) ours.push_back(at->path());
  }
  for (size_t i = 0; !error && i < ours.size(); ++i) fs::remove_all(ours[i], error);
  if (!error && !fs::is_symlink(dir, ignored) && fs::is_empty(dir, ignored)) fs::remove(dir, error);
}

// The Slurm job in the record; empty: there is none, or the record cannot be read.
std::string recorded_slurm_job(const fs::path& dir) {
  const SmallFile file = read_plain_file((dir / kExecRecord).string());
  const auto record = nlohmann::json::parse(file.bytes, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return {};
  const auto id = record.find("slurm_job_id");
  return id != record.end() && id->is_string() ? id->get<std::string>() : std::string();
}

void write_exec_record(const std::string& dir, const ExecJob& job) {
  nlohmann::ordered_json record = {{"job_id", job.job_id}, {"slurm_job_id", nullptr}};
  if (!job.slurm_job_id.empty()) record["slurm_job_id"] = job.slurm_job_id;
  std::error_code ignored;
  fs::remove(fs::path(dir) / kExecRecord, ignored);  // so that the write does not follow a link or go into a pipe
  std::ofstream file(fs::path(dir) / kExecRecord);
  file << dump_json(record, 2) << '\n';
  file.close();
  if (!file) refuse(dir, fmt::format("cannot write {}", kExecRecord));
}

DirectoryLock make_and_lock(const std::string& dir, const std::string& job_id) {
  require_writable(dir);
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) refuse(dir, error.message());
  return DirectoryLock::lock_run_directory(dir, DirectoryLock::launcher_of(job_id));
}

class Remover {
 public:
  explicit Remover(const std::string& dir) : dir_(dir) {}

  void file(const char* name) {
    fs::remove_all(fs::path(dir_) / name, error_);
    check(name);
  }
  void within(const char* name, const std::function<bool(const fs::path&)>& is_ours) {
    clear(fs::path(dir_) / name, is_ours, error_);
    check(name);
  }

 private:
  void check(const char* name) {
    if (error_) refuse(dir_, fmt::format("cannot remove {}: {}", name, error_.message()));
  }

  const std::string& dir_;
  std::error_code error_;
};

}  // namespace

bool holds_logs(const std::string& dir) {
  std::error_code error;
  fs::directory_iterator at(fs::path(dir) / "logs", error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (is_rank_log(at->path()) && at->is_regular_file(ignored) && !fs::is_empty(at->path(), ignored)) return true;
  }
  return false;
}

bool holds_run(const std::string& dir) {
  std::error_code ignored;
  fs::path at(dir);
  bool has_checkpoints = fs::is_directory(at / "checkpoints", ignored) && !fs::is_empty(at / "checkpoints", ignored);
  return (fs::is_regular_file(at / "metrics.jsonl", ignored) && !fs::is_empty(at / "metrics.jsonl", ignored)) ||
         has_checkpoints || fs::exists(at / kExecRecord, ignored);
}

void check_run_dir(const std::string& dir, EarlierRun earlier) {
  require_writable(dir);
  if (earlier != EarlierRun::kRefuse || !holds_run(dir)) return;
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("{} already holds a run: --resume auto continues it, --overwrite discards it, another "
                              "--run_dir keeps it",
                              dir));
}

DirectoryLock prepare_run_dir(const std::string& dir, EarlierRun earlier, const std::string& job_id) {
  DirectoryLock lock = make_and_lock(dir, job_id);
  check_run_dir(dir, earlier);
  if (earlier != EarlierRun::kDiscard) return lock;
  Remover remove(dir);
  for (const char* name : kRunFiles) remove.file(name);
  remove.within("checkpoints", [](const fs::path& path) { return is_checkpoint(path.filename()); });
  remove.within("logs", is_log);
  return lock;
}

bool remove_failed_start(const std::string& dir, const std::string& logs_to) {
  std::error_code error;
  if (holds_run(dir)) return false;
  const fs::path logs = fs::path(dir) / "logs";
  if (fs::is_directory(logs, error)) {
    if (logs_to.empty()) return false;
    fs::create_directories(fs::path(logs_to) / "logs", error);
    for (fs::directory_iterator at(logs, error), end; !error && at != end; at.increment(error)) {
      fs::copy(at->path(), fs::path(logs_to) / "logs" / at->path().filename(), fs::copy_options::recursive, error);
    }
    if (error) return false;
    fs::remove_all(logs, error);
  }
  for (const char* name :
       {kRunRecord, "config.resolved.json", "model_skeleton.pt", "metrics.jsonl", "events.jsonl", "launcher.jsonl"}) {
    fs::remove(fs::path(dir) / name, error);
  }
  fs::remove(fs::path(dir) / "checkpoints", error);
  // Whatever else is there was not written by the start.
  return fs::remove(dir, error) && !error;
}

bool check_exec_dir(const std::string& dir, const ExecJob& job, bool overwrite) {
  require_writable(dir);
  if (overwrite || (!holds_run(dir) && !holds_logs(dir))) return false;
  if (!job.slurm_job_id.empty() && recorded_slurm_job(dir) == job.slurm_job_id) return true;
  // If a job is running in the directory, report that first: it is the better message.
  const DirectoryLock free = DirectoryLock::lock_run_directory(dir, DirectoryLock::launcher_of(job.job_id));
  throw UserError(
      ExitCode::kCannotCreate,
      fmt::format("{} already holds a run: --overwrite replaces its logs, another --run_dir keeps it", dir));
}

void remove_exec_record(const std::string& dir) {
  std::error_code ignored;
  fs::remove(fs::path(dir) / kExecRecord, ignored);
}

DirectoryLock prepare_exec_dir(const std::string& dir, const ExecJob& job, bool overwrite) {
  DirectoryLock lock = make_and_lock(dir, job.job_id);
  check_exec_dir(dir, job, overwrite);
  if (overwrite) {
    Remover remove(dir);
    remove.file(kExecRecord);
    remove.within("logs", is_log);
  }
  write_exec_record(dir, job);
  return lock;
}

}  // namespace dslaunch::launch
