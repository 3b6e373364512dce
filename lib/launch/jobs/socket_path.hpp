// UNIX sockets at paths of any length: the kernel's address holds 107 bytes, so a longer path is reached through a
// descriptor of its folder. Any thread.
#pragma once
#include <string>
#include <string_view>

#include "base/unique_fd.hpp"

namespace dslaunch::launch {

inline constexpr std::string_view kSocketEnding = ".sock", kNewEnding = ".new";

// The folder of this user's sockets; empty: there is none.
std::string socket_folder();

// Where the socket of a new job goes: $XDG_RUNTIME_DIR/dslaunch/JOB.sock, or `fallback` where that variable is not set
// to a folder of this user's that can be used.
std::string choose_socket_path(const std::string& job_id, const std::string& fallback);

// Bound with mode 0600 and listening, non-blocking. It gets its name when somebody listens: until then it ends in
// kNewEnding. Throws SystemError.
UniqueFd listen_at(const std::string& path);

// Connected, non-blocking. Not valid (errno says why) when nobody listens there, or has answered for long.
UniqueFd connect_to(const std::string& path);

// Does the process at the other end belong to this user?
bool peer_is_this_user(const UniqueFd& connection);

}  // namespace dslaunch::launch
