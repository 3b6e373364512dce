#include "launch/supervisor/rank_logs.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/unshare_file.hpp"
#include "base/write_all.hpp"
#include "launch/records/job_record.hpp"
#include "launch/records/private_files.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why, const char* option) {
  throw UserError(ExitCode::kCannotCreate,
                  fmt::format("cannot create the log {}: {}; choose another {}", path, why, option));
}

std::string time_stamp() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &local);
  return text;
}

bool is_pipe(const std::string& path) {
  std::error_code ignored;
  return fs::is_fifo(path, ignored);
}

const char* file_name(Stream stream) {
  return stream == Stream::kOut ? "stdout.log" : "stderr.log";
}

}  // namespace

void RankLogs::open() {
  for (const auto& node : plan_.nodes) {
    for (const auto& rank : node.ranks) {
      local_ranks_.push_back(rank.local_rank);
      RankFiles& files = files_->ranks.emplace_back();
      if (!plan_.log_root().empty()) files.both = create_own(log_path(plan_.log_root(), node.host, rank.rank));
      has_log_.push_back(files.both.fd.valid());
    }
  }
  if (plan_.output.tee.any() || plan_.output.redirects.any()) open_split_files();
  if (!plan_.output.each_rank_log.empty()) open_each_rank_logs();
}

// A directory that the user named has to work; the job's own directory is optional.
RankLogs::File RankLogs::create_own(const std::string& path) {
  bool append = plan_.append_logs || plan_.restart_count > 0;
  try {
    return create(path, append, "--run_dir");
  } catch (const Error& error) {
    if (!plan_.run_dir.empty()) throw;
    if (!std::exchange(files_->error_reported, true)) error_ = error.what();
    return {};
  }
}

// torchrun's layout, LOG_DIR/RUN_ID/attempt_N/RANK/stdout.log. All hosts' logs are here, so the last directory is the
// rank; with one host that is its local rank.
void RankLogs::open_split_files() {
  std::string root = plan_.output.log_dir.empty() ? plan_.log_root() : plan_.output.log_dir;
  if (root.empty()) {
    throw UserError(ExitCode::kCannotCreate, "--tee and --redirects have no directory to write to: add --log_dir DIR");
  }
  if (plan_.output.log_dir.empty()) root += "/logs";
  for (size_t rank = 0; rank < local_ranks_.size(); ++rank) {
    std::string dir = fmt::format("{}/{}/attempt_{}/{}", root, plan_.job_id, plan_.restart_count, rank);
    for (Stream stream : {Stream::kOut, Stream::kErr}) {
      int local_rank = local_ranks_[rank];
      if (!plan_.output.tee.has(local_rank, stream) && !plan_.output.redirects.has(local_rank, stream)) continue;
      files_->ranks[rank].split[static_cast<size_t>(stream)] =
          create(dir + "/" + file_name(stream), false, "--log_dir");
    }
  }
}

void RankLogs::open_each_rank_logs() {
  std::string stamp = time_stamp();
  for (size_t rank = 0; rank < local_ranks_.size(); ++rank) {
    std::string path = fmt::format("{}/{}_rank{}.log", plan_.output.each_rank_log, stamp, rank);
    files_->ranks[rank].each = create(path, true, "--enable_each_rank_log");
  }
}

RankLogs::File RankLogs::create(const std::string& path, bool append, const char* option) const {
  // In the job's own directory only this user has access.
  bool is_private = !plan_.job_dir.empty() && path.starts_with(plan_.job_dir + "/");
  std::string dir = fs::path(path).parent_path().string();
  std::error_code error;
  if (is_private) {
    make_private_dir(dir);
  } else if (fs::create_directories(dir, error); error) {
    refuse(path, error.message(), option);
  }
  append ? remove_symbolic_link(path) : unshare_file(path);
  // A pipe at this path would block everything, first until it has a reader and again whenever that reader pauses.
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (append ? 0 : O_TRUNC);
  File file{path, UniqueFd(::open(path.c_str(), flags, is_private ? 0600 : 0666))};
  const int open_error = errno;  // is_pipe() may change errno
  if (is_pipe(path)) refuse(path, "a pipe with this name exists", option);
  // Another directory would change nothing.
  if (!file.fd.valid() && open_error == EMFILE) throw SystemError("create the log", path, open_error);
  if (!file.fd.valid()) refuse(path, describe_errno(open_error), option);
  return file;
}

void RankLogs::write(int rank, Stream stream, std::string_view bytes) {
  thread_.submit(bytes.size(), [files = files_, rank, stream, bytes = std::string(bytes)] {
    return files->write(rank, stream, bytes);
  });
}

std::string RankLogs::Files::write(int rank, Stream stream, std::string_view bytes) {
  RankFiles& files = ranks[static_cast<size_t>(rank)];
  std::string error;
  for (File* file : {&files.both, &files.each, &files.split[static_cast<size_t>(stream)]}) {
    if (std::string news = write(*file, bytes); !news.empty()) error = std::move(news);
  }
  return error;
}

std::string RankLogs::Files::write(File& file, std::string_view bytes) {
  if (!file.fd.valid()) return {};
  const int error = write_all(file.fd.get(), bytes);
  if (error == 0) return {};
  // A full disk must not end a job that can still train; its checkpoints will report the full disk, more loudly.
  file.fd.reset();
  if (std::exchange(error_reported, true)) return {};
  return fmt::format("cannot write to the log {}: {}", file.path, describe_errno(error));
}

bool RankLogs::redirected(int rank, Stream stream) const {
  return plan_.output.redirects.has(local_ranks_[static_cast<size_t>(rank)], stream);
}

std::string RankLogs::take_error() {
  return std::exchange(error_, {});
}

}  // namespace dslaunch::launch
