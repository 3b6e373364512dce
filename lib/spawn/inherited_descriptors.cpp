#include "spawn/inherited_descriptors.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/close_range.h>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dslaunch::spawn {
namespace {

// The kernel's struct linux_dirent64 up to the name.
struct EntryHead {
  uint64_t inode;
  int64_t offset;
  uint16_t num_bytes;
  uint8_t type;
};
constexpr size_t kNameOffset = offsetof(EntryHead, type) + 1;

void mark(const char* name) {
  int fd = 0;
  const auto [end, error] = std::from_chars(name, name + std::strlen(name), fd);
  if (error != std::errc() || *end != '\0' || fd < 3) return;  // "." and ".."
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

// opendir() would allocate.
int mark_listed(int directory) {
  char buffer[4096];
  for (;;) {
    const long got = ::syscall(SYS_getdents64, directory, buffer, sizeof buffer);
    if (got <= 0) return got < 0 ? errno : 0;
    for (long at = 0; at < got;) {
      uint16_t num_bytes;
      std::memcpy(&num_bytes, buffer + at + offsetof(EntryHead, num_bytes), sizeof num_bytes);
      mark(buffer + at + kNameOffset);
      at += num_bytes;
    }
  }
}

}  // namespace

int close_descriptors_on_exec() {
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return 0;
  // Linux before 5.9 has no such call, before 5.11 not this flag; filters of older container runtimes reject it.
  const int directory = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return errno;
  const int error = mark_listed(directory);
  ::close(directory);
  return error;
}

}  // namespace dslaunch::spawn
