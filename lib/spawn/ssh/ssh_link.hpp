// A command on another host through SSH, with its standard streams as a link. Two ways with the same outcomes: libssh,
// in a module that is opened when it is first needed (libdslaunch_ssh.so), and a program of the user's choice that
// takes ssh's options (SshOptions::program).
//
// Both read ~/.ssh/config (libssh: that of $HOME), ask nothing, and refuse a host key that known_hosts does not hold
// (the program: unless StrictHostKeyChecking of the user's configuration takes it). A server that drops us before the
// handshake, as sshd does beyond its MaxStartups, is asked again until the deadline.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/command_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

// Returns at once; what fails is the link's failure. Many may be open at the same time, each costs a thread. `argv`:
// remote_command.hpp says what a word may hold. Throws UserError(69) when there is no libssh, SystemError for want of
// descriptors or threads.
std::unique_ptr<CommandLink> open_ssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                           const SshOptions& options);

}  // namespace dslaunch::spawn
