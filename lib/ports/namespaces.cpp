#include "ports/namespaces.hpp"

#include <sys/stat.h>

#include "base/format.hpp"

namespace dslaunch::ports {

// From the kernel's proc_ns.h.
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC, kFirstIpcNamespace = 0xEFFFFFFF;

ino_t own_namespace(const char* kind) {
  struct stat status;
  return ::stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &status) == 0 ? status.st_ino : 0;
}

bool is_in_first_pid_namespace() {
  return own_namespace("pid") == kFirstPidNamespace;
}

bool is_in_first_ipc_namespace() {
  return own_namespace("ipc") == kFirstIpcNamespace;
}

}  // namespace dslaunch::ports
