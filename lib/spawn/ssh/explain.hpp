// Explains a failure to reach a host and how to fix it. Pure.
#pragma once
#include <optional>
#include <string>

#include "spawn/agent_link.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

// The remote command ended by itself with a failure. `program`: the remote program; `errors`: the end of the remote
// standard error, including the login shell's output.
LinkFailure explain_remote_end(const SshTarget& target, const std::string& program, const ExitCause& cause,
                               const std::string& errors);

// The ssh program ended with `cause` and wrote `errors`.
LinkFailure explain_ssh_program(const SshTarget& target, const SshOptions& options, const std::string& program,
                                const ExitCause& cause, const std::string& errors);

// Whether `errors` shows that ssh rejected the host's key (changed or unknown), or that authentication failed.
bool tells_of_refusal(const std::string& errors);

// sshd closed the connection before the handshake, which it does when too many connections are at that stage.
bool was_dropped(const ExitCause& cause, const std::string& errors);

// The port to use, if the user specified one.
std::optional<uint16_t> named_port(const SshTarget& target, const SshOptions& options);

// The ssh command that a person would type for that target: "ssh -p 2222 user@host".
std::string ssh_line(const SshTarget& target, const SshOptions& options);

// The last non-empty lines, at most `max_lines`, joined into one line: "first / second".
std::string last_lines(const std::string& text, size_t max_lines);

}  // namespace dslaunch::spawn
