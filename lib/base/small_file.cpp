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

SmallFile read_small_file(const std::string& path, size_t most_bytes) {
  SmallFile file;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd.valid()) {
    file.trouble = describe_errno(errno);
    return file;
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) == 0 && S_ISDIR(info.st_mode)) {
    file.trouble = "it is a folder";
    return file;
  }
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

std::optional<std::string> read_whole_file(const std::string& path) {
  SmallFile file = read_small_file(path, SIZE_MAX);
  if (!file.trouble.empty()) return std::nullopt;
  return std::move(file.bytes);
}

}  // namespace dslaunch
