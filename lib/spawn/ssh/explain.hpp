// What a failure on the way to a host means and what to do about it. Pure.
#pragma once
#include <optional>
#include <string>

#include "spawn/agent_link.hpp"
#include "spawn/exit_cause.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

// The remote command ended by itself, unsuccessfully. `program`: what was to run there; `errors`: the end of what the
// far side said on standard error, the login shell's words included.
LinkFailure explain_remote_end(const SshTarget& target, const std::string& program, const ExitCause& cause,
                               const std::string& errors);

// The ssh program ended with `cause`, having said `errors`.
LinkFailure explain_ssh_program(const SshTarget& target, const SshOptions& options, const std::string& program,
                                const ExitCause& cause, const std::string& errors);

// The words of an ssh program that knows the host's key otherwise or not at all, or that was not let in.
bool tells_of_refusal(const std::string& errors);

// sshd closed the connection before the handshake, which it does when too many are at that stage.
bool was_dropped(const ExitCause& cause, const std::string& errors);

// The port to use, where the user named one.
std::optional<uint16_t> named_port(const SshTarget& target, const SshOptions& options);

// How a person would type ssh to that target: "ssh -p 2222 user@host".
std::string ssh_line(const SshTarget& target, const SshOptions& options);

// The last lines that are not empty, at most `max_lines`, in one line: "first / second".
std::string last_lines(const std::string& text, size_t max_lines);

}  // namespace dslaunch::spawn
