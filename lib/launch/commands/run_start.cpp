#include "launch/commands/run_start.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "launch/plan/run_dir.hpp"
#include "launch/records/job_dirs.hpp"
#include "launch/records/private_files.hpp"
#include "launch/supervisor/run_metrics.hpp"

namespace dslaunch::launch {
namespace {

// On a file server that does not answer: as if there were none, after 2 s.
std::string last_line_in(const std::string& run_dir) {
  FileThread reads;
  return last_metrics_line(reads, run_dir);
}

}  // namespace

void RunStart::look_at(const std::string& run_dir, bool keeps_run) {
  std::error_code ignored;
  run_dir_ = run_dir;
  is_created_ = !std::filesystem::exists(run_dir, ignored);
  if (!keeps_run || !holds_run(run_dir)) return;
  earlier_ = read_run_record(run_dir);
  earlier_metrics_ = last_line_in(run_dir);
}

void RunStart::record(const RunRecord& record, bool may_remove) {
  record_nothing(record.job_id, may_remove);
  write_run_record(run_dir_, record);
  is_recorded_ = true;
}

void RunStart::record_nothing(const std::string& job_id, bool may_remove) {
  job_id_ = job_id;
  is_created_ = is_created_ && may_remove;
}

bool RunStart::has_step() const {
  return holds_run(run_dir_) && last_line_in(run_dir_) != earlier_metrics_;
}

bool RunStart::leaves_nothing() const {
  return is_created_ && !holds_run(run_dir_);
}

bool RunStart::moves_logs() const {
  return leaves_nothing() && has_job_dir(job_id_);
}

void RunStart::take_back() try {
  if (leaves_nothing()) return remove_directory();
  if (is_recorded_ && earlier_ && !has_step()) write_run_record(run_dir_, *earlier_);
} catch (const std::exception& error) {
  log::warning("cannot clean up the run directory {}: {}", run_dir_, error.what());
}

void RunStart::remove_directory() const {
  const auto job = job_on_record(jobs_root(), job_id_);
  if (!remove_failed_start(run_dir_, job ? job->dir.path : "")) return;
  if (!job) return;
  JobRecord record = job->record;
  record.log_root = job->dir.path;
  write_private_file(job->dir.record_file(), record_to_json(record));
  log::info("no step was done, so {} is removed{}", run_dir_,
            holds_logs(job->dir.path) ? fmt::format("; the logs are in {}/logs", job->dir.path) : "");
}

}  // namespace dslaunch::launch
