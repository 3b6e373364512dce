// Runs one command on another host, from its start to its end.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "spawn/agent_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

struct RemoteResult {
  std::optional<int> exit_code;  // as a shell reports it (128 + signal); nullopt when the transport failed
  std::string out;               // all of its standard output, 64 MiB at most
  std::string err;               // the last 8 KiB of its standard error
  std::optional<LinkFailure> failure;

  bool success() const { return exit_code == 0; }
};

// Detects that the command has begun, after the connection and the login shell: bytes in its output that nothing writes
// earlier. If they do not arrive by `due`, the command is cut.
struct RemoteStart {
  std::string marker;  // empty: the start is not detected
  Deadline due = Deadline::never();
};

// Sends `input` to the command and waits for its end until the deadline; then the command is cut and the failure has
// code 124. Any thread; many at the same time. Throws as open_ssh_link does.
RemoteResult run_remote(const SshTarget& target, const std::vector<std::string>& argv, std::string_view input,
                        const SshOptions& options, Deadline deadline, const RemoteStart& start = {});

}  // namespace dslaunch::spawn
