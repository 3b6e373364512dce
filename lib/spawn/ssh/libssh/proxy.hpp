// The user's ProxyCommand (libssh makes one of ProxyJump) as the stream to a host's sshd. Started here and not by
// libssh, which lets a proxy write to our terminal.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/unique_fd.hpp"

namespace dslaunch::spawn {

// A proxy's process, ended with this object. Owned by the thread that started it, which has to outlive it.
class Proxy {
 public:
  // `command` as in ssh_config, with its % tokens. Throws ConnectError.
  Proxy(const std::string& command, const std::string& alias, const std::string& host, uint16_t port,
        const std::string& user);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  UniqueFd take_stream() { return std::move(stream_); }
  std::string errors() const;  // what it has written on standard error
  const std::string& command() const { return command_; }

 private:
  std::string command_;
  UniqueFd stream_, errors_;
  pid_t pid_ = -1;
};

}  // namespace dslaunch::spawn
