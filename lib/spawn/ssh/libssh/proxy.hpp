// Runs the user's ProxyCommand (libssh turns ProxyJump into one) as the stream to a host's sshd. Started here instead
// of by libssh, which lets a proxy write to our terminal.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

// A proxy's process, which ends with this object. Owned by the thread that started it; the thread must outlive it.
class Proxy {
 public:
  // `command` as in ssh_config, with its % tokens. Throws ConnectError.
  Proxy(const std::string& command, const std::string& alias, const std::string& host, uint16_t port,
        const std::string& user);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  UniqueFd take_stream() { return std::move(stream_); }
  std::string errors() const;  // its standard error so far
  const std::string& command() const { return command_; }

 private:
  std::string command_;
  UniqueFd stream_, errors_;
  pid_t pid_ = -1;
};

}  // namespace dslaunch::spawn
