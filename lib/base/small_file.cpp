#include "base/small_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch {

namespace {

mode_t type_of(const UniqueFd& fd) {
  struct stat info {};
  return ::fstat(fd.get(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

SmallFile with_trouble(std::string trouble) {
  return {.bytes = {}, .trouble = std::move(trouble)};
}

SmallFile read_to_end(const UniqueFd& fd, size_t most_bytes) {
  SmallFile file;
  std::vector<char> chunk(1U << 16);
  while (file.bytes.size() <= most_bytes) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) file.trouble = describe_errno(errno);
    if (got <= 0) return file;
    file.bytes.append(chunk.data(), static_cast<size_t>(got));
  }
  file.too_large = true;
  file.trouble = fmt::format("it goes on after {} bytes, which is more than such a file may have", most_bytes);
  return file;
}

}  // namespace

SmallFile read_small_file(const std::string& path, size_t most_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) return with_trouble(describe_errno(errno));
  if (type_of(fd) == S_IFDIR) return with_trouble("it is a folder");
  return read_to_end(fd, most_bytes);
}

SmallFile read_plain_file(const std::string& path, size_t most_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return with_trouble(describe_errno(errno));
  if (type_of(fd) != S_IFREG) return with_trouble("it is no plain file");
  return read_to_end(fd, most_bytes);
}

std::optional<std::string> read_whole_file(const std::string& path) {
  SmallFile file = read_small_file(path, SIZE_MAX);
  if (!file.trouble.empty()) return std::nullopt;
  return std::move(file.bytes);
}

}  // namespace dslaunch
