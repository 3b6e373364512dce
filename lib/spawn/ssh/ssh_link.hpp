// Runs a command on another host through SSH, with its standard streams as a link. Two transports with the same
// outcomes: libssh, in a module that is loaded when first needed (libdslaunch_ssh.so), and a program of the user's
// choice that takes ssh's options (SshOptions::program).
//
// Both read ~/.ssh/config (libssh: in $HOME), never prompt, and reject a host key that known_hosts does not contain
// (the program: unless StrictHostKeyChecking in the user's configuration accepts it). If the server drops the
// connection before the handshake, as sshd does beyond its MaxStartups, both retry until the deadline.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/agent_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

// Returns immediately; an error becomes the link's failure. Many links may be open at the same time; each costs a
// thread. `argv`: remote_command.hpp says what a word may contain. Throws UserError(69) when libssh is not available,
// SystemError when no descriptors or threads are left.
std::unique_ptr<CommandLink> open_ssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                           const SshOptions& options);

}  // namespace dslaunch::spawn
