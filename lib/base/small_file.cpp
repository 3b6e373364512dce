#include "base/small_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch {

namespace {

// All zeros where fstat fails.
struct stat status_of(const UniqueFd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) status = {};
  return status;
}

SmallFile failed(std::string why) {
  return {.bytes = {}, .outcome = Failure{std::move(why)}};
}

SmallFile read_to_end(const UniqueFd& fd, size_t max_bytes) {
  SmallFile file;
  std::vector<char> chunk(1U << 16);
  while (file.bytes.size() <= max_bytes) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.outcome = Failure{describe_errno(errno)};
    if (got <= 0) return file;
    file.bytes.append(chunk.data(), static_cast<size_t>(got));
  }
  file.too_large = true;
  file.outcome = Failure{fmt::format("it is longer than {} bytes, the limit for such a file", max_bytes)};
  return file;
}

}  // namespace

SmallFile read_small_file(const std::string& path, size_t max_bytes, const FileCheck& check) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return failed(describe_open_error(path, errno));
  const struct stat status = status_of(fd);
  if (S_ISDIR(status.st_mode)) return failed("it is a directory");
  if (check) check(status);
  return read_to_end(fd, max_bytes);
}

SmallFile read_plain_file(const std::string& path, size_t max_bytes, const FileCheck& check) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return failed(describe_errno(errno));
  const struct stat status = status_of(fd);
  if (!S_ISREG(status.st_mode)) return failed("it is not a plain file");
  if (check) check(status);
  return read_to_end(fd, max_bytes);
}

std::optional<std::string> read_whole_file(const std::string& path) {
  SmallFile file = read_small_file(path, SIZE_MAX);
  if (!file.outcome.ok()) return std::nullopt;
  return std::move(file.bytes);
}

}  // namespace dslaunch
