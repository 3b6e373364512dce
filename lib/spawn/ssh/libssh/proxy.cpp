#include "spawn/ssh/libssh/proxy.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>
#include <variant>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "spawn/process.hpp"
#include "spawn/ssh/libssh/interrupt.hpp"

namespace dslaunch::spawn {
namespace {

bool is_plain_name(const std::string& text) {
  return !text.empty() && text[0] != '-' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:%@+-") ==
             std::string::npos;
}

std::string expand(const std::string& command, const std::string& alias, const std::string& host, uint16_t port,
                   const std::string& user) {
  // The names become part of a command line for a shell on this machine.
  for (const auto& name : {alias, host, user}) {
    if (!is_plain_name(name)) {
      throw ConnectError{
          {.phase = "resolve",
           .text = fmt::format("'{}' cannot be passed to a ProxyCommand: it is not a plain name", name)}};
    }
  }
  std::string text = "exec ";
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] != '%' || i + 1 == command.size()) {
      text += command[i];
      continue;
    }
    switch (command[++i]) {
      case 'h':
        text += host;
        break;
      case 'n':
        text += alias;
        break;
      case 'p':
        text += std::to_string(port);
        break;
      case 'r':
        text += user;
        break;
      case '%':
        text += '%';
        break;
      default:
        throw ConnectError{
            {.phase = "connect",
             .text = fmt::format("the ProxyCommand '{}' for {} uses %{}, which only OpenSSH expands: give "
                                 "--ssh_program ssh",
                                 command, alias, command[i])}};
    }
  }
  return text;
}

std::map<std::string, std::string> noninteractive_environment() {
  auto env = environment_of_this_process();
  env["SSH_ASKPASS_REQUIRE"] = "never";
  return env;
}

}  // namespace

Proxy::Proxy(const std::string& command, const std::string& alias, const std::string& host, uint16_t port,
             const std::string& user)
    : command_(expand(command, alias, host, port, user)) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw SystemError("socketpair", "to a proxy");
  stream_.reset(ends[0]);
  UniqueFd theirs(ends[1]);
  ::fcntl(stream_.get(), F_SETFL, O_NONBLOCK);
  // A file instead of a pipe: no reader has to drain it.
  errors_.reset(::memfd_create("proxy-errors", MFD_CLOEXEC));
  if (!errors_.valid()) throw SystemError("memfd_create", "for a proxy's errors");
  ProcessSpec spec{.argv = {"/bin/sh", "-c", command_}, .env = noninteractive_environment(), .cwd = ""};
  spec.in = spec.out = theirs.get();
  spec.err = errors_.get();
  auto started = start_process(spec);
  if (auto* cause = std::get_if<ExitCause>(&started)) {
    throw ConnectError{{.phase = "connect", .text = fmt::format("the ProxyCommand for {}: {}", alias, cause->hint)}};
  }
  pid_ = std::get<Process>(started).pid;
}

Proxy::~Proxy() {
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string Proxy::errors() const {
  char text[4096];
  off_t size = ::lseek(errors_.get(), 0, SEEK_END);
  off_t from = size > static_cast<off_t>(sizeof text) ? size - static_cast<off_t>(sizeof text) : 0;
  ssize_t got = ::pread(errors_.get(), text, sizeof text, from);
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : std::string();
}

}  // namespace dslaunch::spawn
