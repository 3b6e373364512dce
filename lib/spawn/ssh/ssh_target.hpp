// The target and the options of everything that uses SSH. Plain values.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::spawn {

struct SshTarget {
  std::string host;              // as the user wrote it; may be an alias of ~/.ssh/config
  std::string user;              // empty: the configuration's, else our own
  std::optional<uint16_t> port;  // of this host; takes precedence over SshOptions::port
};

// The default time limit per host: long enough for a slow lookup and a busy sshd.
inline constexpr std::chrono::milliseconds kDefaultConnectTimeout{15'000};

struct SshOptions {
  std::string program;           // empty: libssh; else the name or path of a program that takes ssh's options
  std::optional<uint16_t> port;  // for all hosts; if unset, the configuration's, else 22
  // From the first name lookup to the start of the remote command.
  std::chrono::milliseconds connect_timeout = kDefaultConnectTimeout;
};

// "user@host", or the host alone.
inline std::string describe(const SshTarget& target) {
  return target.user.empty() ? target.host : target.user + "@" + target.host;
}

}  // namespace dslaunch::spawn
