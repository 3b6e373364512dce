// Where to, and how, for everything that goes through SSH. Plain values.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::spawn {

struct SshTarget {
  std::string host;              // as the user wrote it; an alias of ~/.ssh/config is one
  std::string user;              // empty: what the configuration says, else our own
  std::optional<uint16_t> port;  // of this host; goes before SshOptions::port
};

// How long a host may take when nobody says otherwise: long enough for a slow look-up and a busy sshd.
inline constexpr std::chrono::milliseconds kDefaultConnectTimeout{15'000};

struct SshOptions {
  std::string program;           // empty: libssh; else the name or path of a program that takes ssh's options
  std::optional<uint16_t> port;  // for all hosts; without one the configuration's, else 22
  // From the first look-up to the start of the remote command.
  std::chrono::milliseconds connect_timeout = kDefaultConnectTimeout;
};

// "user@host", or the host alone.
inline std::string describe(const SshTarget& target) {
  return target.user.empty() ? target.host : target.user + "@" + target.host;
}

}  // namespace dslaunch::spawn
