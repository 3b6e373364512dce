// The two transports behind open_ssh_link.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "spawn/agent_link.hpp"
#include "spawn/ssh/ssh_target.hpp"

namespace dslaunch::spawn {

// make.cpp, or no_ssh.cpp in a build without libssh.
std::unique_ptr<CommandLink> open_libssh_link(const SshTarget& target, const std::vector<std::string>& argv,
                                              const SshOptions& options);

// ssh_program_transport.cpp
std::unique_ptr<CommandLink> open_ssh_program_link(const SshTarget& target, const std::vector<std::string>& argv,
                                                   const SshOptions& options);

// The type of dslaunch_open_ssh_link, which libdslaunch_ssh.so exports. No exception crosses the library boundary: it
// returns nullptr with the reason in `error`.
using ModuleFactory = CommandLink* (*)(const SshTarget& target, const std::vector<std::string>& argv,
                                       const SshOptions& options, std::string& error);

}  // namespace dslaunch::spawn
