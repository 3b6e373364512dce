// The ssh program as the transport: one local process per link, started again when sshd drops it before the handshake.
#include <algorithm>

#include "base/deadline.hpp"
#include "spawn/program/program_link.hpp"
#include "spawn/ssh/backoff.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/remote_command.hpp"
#include "spawn/ssh/transports.hpp"

namespace dslaunch::spawn {
namespace {

std::vector<std::string> program_words(const SshTarget& target, const std::vector<std::string>& argv,
                                       const SshOptions& options) {
  auto seconds = std::max<int64_t>(1, std::chrono::ceil<std::chrono::seconds>(options.connect_timeout).count());
  const std::string settings[] = {
      "BatchMode=yes",  // rejects an unknown host key, unless the user's StrictHostKeyChecking accepts it
      "ConnectTimeout=" + std::to_string(seconds),
      "ControlMaster=no",         // a master started by us would outlive the job
      "ClearAllForwardings=yes",  // a port of the user's own sessions can be bound only once
      "IgnoreUnknown=*",          // replaces the user's list: OpenSSH before 7.6 does not know the next option
      "RemoteCommand=none",       // would conflict with our command
  };
  std::vector<std::string> words{options.program};
  for (const auto& setting : settings) words.insert(words.end(), {"-o", setting});
  words.emplace_back("-T");
  if (auto port = named_port(target, options)) words.insert(words.end(), {"-p", std::to_string(*port)});
  if (!target.user.empty()) words.insert(words.end(), {"-l", target.user});
  words.insert(words.end(), {"--", target.host, remote_command(argv)});
  return words;
}

}  // namespace

std::unique_ptr<CommandLink> open_ssh_program_link(const SshTarget& target, const std::vector<std::string>& argv,
                                                   const SshOptions& options) {
  ProgramLinkOptions link;
  link.errors = ProgramLinkOptions::Errors::kCapture;
  link.die_with_us = true;
  link.explain = [=](const ExitCause& cause, const std::string& errors) {
    return explain_ssh_program(target, options, argv.at(0), cause, errors);
  };
  link.again = [backoff = Backoff(Deadline::after(options.connect_timeout))](
                   const ExitCause& cause,
                   const std::string& errors) mutable -> std::optional<std::chrono::milliseconds> {
    if (!was_dropped(cause, errors)) return std::nullopt;
    return backoff.next();
  };
  return open_program_link(program_words(target, argv, options), std::move(link));
}

}  // namespace dslaunch::spawn
