// Writes all bytes to a blocking descriptor (mostly a file). Any thread.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace dslaunch {

// Returns 0, or the errno; a part may have been written then.
inline int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return 0;
}

}  // namespace dslaunch
