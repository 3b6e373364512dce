#include "launch/jobs/console_log.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/jobs/private_files.hpp"

namespace dslaunch::launch {

ConsoleLog::ConsoleLog(const std::string& path) : path_(path), file_(open_private_log(path)) {
  if (!file_.valid()) throw SystemError("create", path, errno, ExitCode::kCannotCreate);
}

void ConsoleLog::append(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      if (!trouble_told_) trouble_ = fmt::format("cannot write to {}: {}", path_, describe_errno(errno));
      trouble_told_ = true;
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
}

std::string ConsoleLog::take_trouble() {
  return std::exchange(trouble_, {});
}

uint64_t ConsoleLog::size() const {
  struct stat found;
  return ::fstat(file_.get(), &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

std::string ConsoleLog::read(uint64_t position, size_t most) const {
  std::string bytes(most, '\0');
  ssize_t got = ::pread(file_.get(), bytes.data(), most, static_cast<off_t>(position));
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

}  // namespace dslaunch::launch
