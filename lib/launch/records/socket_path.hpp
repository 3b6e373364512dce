// UNIX sockets at paths of any length: the kernel's address holds 107 bytes, so a longer path is accessed through a
// descriptor of its directory. Any thread.
#pragma once
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

inline constexpr std::string_view kSocketEnding = ".sock", kNewEnding = ".new";

// The directory of this user's sockets; empty: there is none.
std::string socket_dir();

// The path for a new job's socket: $XDG_RUNTIME_DIR/dslaunch/JOB.sock, or `fallback` if that variable does not name a
// usable directory of this user.
std::string choose_socket_path(const std::string& job_id, const std::string& fallback);

// Bound with mode 0600 and listening, non-blocking. The socket gets its final name only once it is listening: until
// then its name ends in kNewEnding. Throws SystemError.
UniqueFd listen_at(const std::string& path);

// Connected, non-blocking. Not valid (errno is set) when there is no listener, or its queue of waiting clients is full.
UniqueFd connect_to(const std::string& path);

// Does the peer process belong to this user?
bool peer_is_this_user(const UniqueFd& connection);

}  // namespace dslaunch::launch
