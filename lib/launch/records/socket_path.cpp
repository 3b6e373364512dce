#include "launch/records/socket_path.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/scope_exit.hpp"
#include "launch/records/private_files.hpp"

namespace dslaunch::launch {
namespace {

// The address of a path, and the directory descriptor that must stay open while the address is used.
struct Address {
  sockaddr_un address{};
  UniqueFd dir;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

bool make_address(const std::string& path, Address& to) {
  to.address.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof to.address.sun_path) {
    std::filesystem::path whole(path);
    to.dir = UniqueFd(::open(whole.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!to.dir.valid()) return false;
    name = fmt::format("/proc/self/fd/{}/{}", to.dir.get(), whole.filename().string());
  }
  if (name.size() >= sizeof to.address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(to.address.sun_path, name.c_str(), name.size() + 1);
  return true;
}

}  // namespace

std::string socket_dir() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code unusable;
  if (runtime == nullptr || runtime[0] != '/' || !std::filesystem::is_directory(runtime, unusable)) return {};
  return std::string(runtime) + "/dslaunch";
}

std::string choose_socket_path(const std::string& job_id, const std::string& fallback) {
  const std::string dir = socket_dir();
  if (dir.empty()) return fallback;
  try {
    make_private_dir(dir);
  } catch (const SystemError&) {
    return fallback;
  }
  return ::access(dir.c_str(), W_OK | X_OK) == 0 ? fmt::format("{}/{}{}", dir, job_id, kSocketEnding) : fallback;
}

UniqueFd listen_at(const std::string& path) {
  Address address;
  const std::string aside = path + std::string(kNewEnding);
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid() || !make_address(aside, address)) throw SystemError("make a socket at", path);
  // The socket's file is created with this mode: there is no moment at which other users could connect.
  if (::fchmod(listener.get(), 0600) != 0) throw SystemError("fchmod", path);
  if (::bind(listener.get(), address.get(), sizeof address.address) != 0) throw SystemError("bind", path);
  ScopeExit tidy([&] { ::unlink(aside.c_str()); });
  if (::chmod(aside.c_str(), 0600) != 0) throw SystemError("chmod", path);
  if (::listen(listener.get(), 64) != 0) throw SystemError("listen", path);
  if (::rename(aside.c_str(), path.c_str()) != 0) throw SystemError("rename", path);
  return listener;
}

UniqueFd connect_to(const std::string& path) {
  Address address;
  // With the listener's queue full, a blocking connect would wait until the supervisor accepts clients again.
  UniqueFd connection(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.valid() || !make_address(path, address)) return {};
  if (::connect(connection.get(), address.get(), sizeof address.address) != 0) {
    int error = errno;
    connection.reset();
    errno = error;
  }
  return connection;
}

bool peer_is_this_user(const UniqueFd& connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

}  // namespace dslaunch::launch
