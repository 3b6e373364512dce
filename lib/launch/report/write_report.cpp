#include "launch/report/write_report.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "base/unique_fd.hpp"
#include "base/write_all.hpp"
#include "launch/report/page.hpp"
#include "launch/report/run_history.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kDefaultName = "report.html";

void require_run_directory(const std::string& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("no run directory '{}': {}{}; 'dslaunch jobs --all' lists your jobs", printable(dir),
                                error ? error.message() : "not a directory", did_you_mean_file(dir)));
  }
  const fs::directory_iterator readable(dir, error);
  if (error) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot read directory '{}': {}", printable(dir), error.message()));
  }
  if (is_run_directory(dir)) return;
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("'{}' is not a run directory: it has neither metrics.jsonl nor any other record of a run; "
                  "expected what --run_dir named, by default runs/JOB",
                  printable(dir)));
}

bool is_report(const std::string& path) {
  const SmallFile file = read_plain_file(path, /*max_bytes=*/1024);
  return file.bytes.substr(0, 1024).find(kReportMark) != std::string::npos;
}

// A user's own report.html is not replaced unless --out names it.
std::string default_path(const std::vector<std::string>& dirs) {
  const std::string path = dirs.size() == 1 ? (fs::path(dirs[0]) / kDefaultName).string() : kDefaultName;
  std::error_code ignored;
  if (!fs::exists(path, ignored) || is_report(path)) return path;
  throw UserError(
      ExitCode::kCannotCreate,
      fmt::format("'{}' exists and was not written by 'dslaunch report': --out FILE.html names another file, "
                  "or this one",
                  printable(path)));
}

[[noreturn]] void refuse_output(const std::string& path, int error_number) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot write the report to '{}': {}; choose another file with --out FILE.html",
                              printable(path), describe_errno(error_number)));
}

// A device or a pipe, as with --out /dev/stdout, is written directly.
bool is_special(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void write_file(const std::string& path, const std::string& text) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) refuse_output(path, EISDIR);
  const bool direct = is_special(path);
  const std::string written = direct ? path : fmt::format("{}.{}.tmp", path, ::getpid());
  const UniqueFd file(::open(written.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) refuse_output(path, errno);
  int error = write_all(file.get(), text);
  if (error == 0 && !direct && ::rename(written.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (!direct) ::unlink(written.c_str());
  throw SystemError("write", fmt::format("the report to '{}'", printable(path)), error);
}

Json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json document_of(const RunHistory& run) {
  const Curve* loss = run.curves.find("loss");
  std::optional<double> last;
  if (loss != nullptr && !loss->points.empty()) last = loss->points.back().y;
  return {{"run_dir", run.dir},
          {"name", run.name},
          {"job_id", run.job_id.empty() ? Json(nullptr) : Json(run.job_id)},
          {"state", run.state},
          {"last_step", number(run.last_step())},
          {"last_loss", number(last)},
          {"starts", run.attempts.size()},
          {"checkpoints", run.checkpoints.size()},
          {"notes", run.notes}};
}

}  // namespace

int write_report(const ReportOptions& options) {
  for (const auto& dir : options.dirs) require_run_directory(dir);
  const std::string out = options.out.empty() ? default_path(options.dirs) : options.out;
  std::vector<RunHistory> runs;
  Json documents = Json::array();
  for (const auto& dir : options.dirs) {
    runs.push_back(read_run_history(dir));
    documents.push_back(document_of(runs.back()));
  }
  const std::string page = report_page(runs);
  if (out == "-") {
    if (const int error = write_all(STDOUT_FILENO, page); error != 0)
      throw SystemError("write", "standard output", error);
    return to_int(ExitCode::kSuccess);
  }
  write_file(out, page);
  if (options.json) {
    std::fputs((dump_json(Json{{"report", out}, {"runs", std::move(documents)}}, 2) + "\n").c_str(), stdout);
    return to_int(ExitCode::kSuccess);
  }
  for (const auto& run : runs) {
    for (const auto& note : run.notes) log::info("{}: {}", run.name, note);
  }
  print_text(out + "\n");
  return to_int(ExitCode::kSuccess);
}

}  // namespace dslaunch::launch
