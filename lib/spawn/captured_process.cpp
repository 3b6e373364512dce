#include "spawn/captured_process.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <variant>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "spawn/process.hpp"

namespace dslaunch::spawn {
namespace {

// A file in memory: neither side waits for the other.
UniqueFd memory_file(const std::string& program) {
  UniqueFd file(::memfd_create("dslaunch stream", MFD_CLOEXEC));
  if (!file.valid()) throw SystemError("memfd_create", program, errno, ExitCode::kUnavailable);
  return file;
}

void write_all(const UniqueFd& file, const std::string& bytes, const std::string& program) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) throw SystemError("write", program, errno, ExitCode::kUnavailable);
    done += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  ::lseek(file.get(), 0, SEEK_SET);
}

std::string read_all(const UniqueFd& file) {
  std::string out(static_cast<size_t>(std::max<off_t>(::lseek(file.get(), 0, SEEK_END), 0)), '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(file.get(), out.data() + done, out.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  out.resize(done);
  return out;
}

}  // namespace

CapturedProcess run_captured(const std::vector<std::string>& argv, const std::string& input, bool captures_err) {
  const UniqueFd in = memory_file(argv[0]), out = memory_file(argv[0]), err = memory_file(argv[0]);
  write_all(in, input, argv[0]);
  ProcessSpec spec;
  spec.argv = argv;
  spec.env = environment_of_this_process();
  spec.in = in.get();
  spec.out = out.get();
  spec.err = captures_err ? err.get() : STDERR_FILENO;
  const auto started = start_process(spec);
  if (const auto* cause = std::get_if<ExitCause>(&started)) return {*cause, {}, {}};
  int status = 0;
  while (::waitpid(std::get<Process>(started).pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {decode_wait_status(status), read_all(out), read_all(err)};
}

}  // namespace dslaunch::spawn
