#include "fio_rate.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/unique_fd.hpp"
#include "spawn/process.hpp"

namespace dslaunch::launcher {
namespace {

std::string read_whole(int fd) {
  std::string text(static_cast<size_t>(std::max<off_t>(::lseek(fd, 0, SEEK_END), 0)), '\0');
  const ssize_t read = ::pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(read, 0)));
  return text;
}

Result<double> rate_of(const std::string& output, bool is_write) {
  // fio may warn before its document.
  const auto begin = output.find('{');
  const auto document =
      begin == output.npos ? nlohmann::json() : nlohmann::json::parse(output.substr(begin), nullptr, false);
  const nlohmann::json::json_pointer place(is_write ? "/jobs/0/write/bw_bytes" : "/jobs/0/read/bw_bytes");
  if (!document.is_object() || !document.contains(place) || !document.at(place).is_number()) {
    return Failure{"its output has no rate"};
  }
  const double rate = document.at(place).get<double>();
  if (rate > 0) return rate;
  return Failure{"it moved no bytes"};
}

}  // namespace

std::vector<std::string> fio_command(const FioJob& job) {
  const int jobs = job.setting.num_threads * (job.uses_uring ? 1 : job.setting.queue_depth);
  const int64_t block = job.setting.block_size;
  const int64_t share = std::max(job.bytes / jobs / block, int64_t{1}) * block;
  std::vector<std::string> words{"fio",
                                 "--name=dslaunch",
                                 "--filename=" + job.path,
                                 "--allow_file_create=0",
                                 fmt::format("--size={}", share),
                                 fmt::format("--offset_increment={}", share),
                                 fmt::format("--rw={}", job.is_write ? "write" : "read"),
                                 fmt::format("--bs={}", block),
                                 fmt::format("--direct={}", job.direct ? 1 : 0),
                                 fmt::format("--numjobs={}", jobs),
                                 fmt::format("--runtime={}", job.seconds),
                                 "--time_based",
                                 "--thread",
                                 "--group_reporting",
                                 "--output-format=json"};
  if (job.uses_uring) {
    words.insert(words.end(),
                 {"--ioengine=io_uring", "--fixedbufs=1", fmt::format("--iodepth={}", job.setting.queue_depth)});
  } else {
    words.emplace_back("--ioengine=psync");
  }
  return words;
}

Result<double> measure_with_fio(const FioJob& job) {
  const UniqueFd out(::memfd_create("fio", MFD_CLOEXEC)), err(::memfd_create("fio-errors", MFD_CLOEXEC));
  if (!out.valid() || !err.valid()) return Failure{"memfd_create: " + describe_errno(errno)};
  spawn::ProcessSpec spec{
      .argv = fio_command(job), .env = environment_of_this_process(), .cwd = "", .out = out.get(), .err = err.get()};
  const auto started = spawn::start_process(spec);
  if (const auto* cause = std::get_if<spawn::ExitCause>(&started)) {
    return Failure{cause->number == 127 ? std::string("it is not installed") : spawn::describe(*cause)};
  }
  int status = 0;
  while (::waitpid(std::get<spawn::Process>(started).pid, &status, 0) < 0 && errno == EINTR) {
  }
  const spawn::ExitCause cause = spawn::decode_wait_status(status);
  if (cause.success()) return rate_of(read_whole(out.get()), job.is_write);
  const std::string errors = read_whole(err.get());
  return Failure{spawn::describe(cause) + ": " + errors.substr(0, errors.find('\n'))};
}

}  // namespace dslaunch::launcher
