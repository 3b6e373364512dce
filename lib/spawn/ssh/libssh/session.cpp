#include "spawn/ssh/libssh/session.hpp"

#include <cstdlib>

#include "base/format.hpp"
#include "spawn/ssh/explain.hpp"
#include "spawn/ssh/libssh/dial.hpp"

namespace dslaunch::spawn {
namespace {

// libssh uses the home directory of the password database; where HOME differs (a container's arbitrary user, a test),
// HOME is the right one.
std::string ssh_dir() {
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.ssh" : std::string();
}

std::string without_brackets(const std::string& host) {
  bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

SshSession::SshSession(const SshTarget& target, const SshOptions& options, Deadline deadline,
                       const Interrupt& interrupt)
    : target_(target), options_(options), deadline_(deadline), interrupt_(interrupt), session_(ssh_new()) {
  if (session_ == nullptr) throw ConnectError{{.phase = "connect", .text = "libssh: out of memory"}};
  try {
    read_configuration();
  } catch (...) {
    ssh_free(session_);
    throw;
  }
}

SshSession::~SshSession() {
  ssh_free(session_);  // closes the stream too; sends no goodbye that could block
}

void SshSession::read_configuration() {
  std::string host = without_brackets(target_.host);
  if (ssh_options_set(session_, SSH_OPTIONS_HOST, host.c_str()) != SSH_OK) {
    throw ConnectError{{.phase = "resolve", .text = fmt::format("'{}' is not a host name: {}", target_.host, error())}};
  }
  if (!target_.user.empty()) ssh_options_set(session_, SSH_OPTIONS_USER, target_.user.c_str());
  if (std::string dir = ssh_dir(); !dir.empty()) ssh_options_set(session_, SSH_OPTIONS_SSH_DIR, dir.c_str());
  if (ssh_options_parse_config(session_, nullptr) != SSH_OK) {
    throw ConnectError{{.phase = "resolve", .text = fmt::format("cannot read the ssh configuration: {}", error())}};
  }
  if (auto port = named_port(target_, options_)) {
    unsigned int number = *port;
    ssh_options_set(session_, SSH_OPTIONS_PORT, &number);
  }
  unsigned int port = 22;
  ssh_options_get_port(session_, &port);
  port_ = static_cast<uint16_t>(port);
  if (option(SSH_OPTIONS_USER).empty()) ssh_options_set(session_, SSH_OPTIONS_USER, nullptr);  // our own user
  host_ = option(SSH_OPTIONS_HOST);
  user_ = option(SSH_OPTIONS_USER);
  int silent = SSH_LOG_NOLOG;
  ssh_options_set(session_, SSH_OPTIONS_LOG_VERBOSITY, &silent);
  ssh_set_blocking(session_, 0);
}

std::string SshSession::option(enum ssh_options_e name) const {
  char* value = nullptr;
  if (ssh_options_get(session_, name, &value) != SSH_OK) return {};
  std::string text = value;
  ssh_string_free_char(value);
  return text;
}

void SshSession::connect() {
  std::string proxy = option(SSH_OPTIONS_PROXYCOMMAND);
  UniqueFd stream;
  if (proxy.empty()) {
    stream = dial_tcp(host_, port_, deadline_, interrupt_);
  } else {
    proxy_.emplace(proxy, without_brackets(target_.host), host_, port_, user_);
    stream = proxy_->take_stream();
  }
  socket_t fd = stream.release();
  ssh_options_set(session_, SSH_OPTIONS_FD, &fd);
  if (until_done(SSH_AGAIN, "connect", [&] { return ssh_connect(session_); }) != SSH_OK) fail_handshake();
}

void SshSession::fail_handshake() {
  if (proxy_) {
    std::string said = last_lines(proxy_->errors(), 2);
    const bool refused = tells_of_refusal(proxy_->errors());
    throw ConnectError{{.code = refused ? ExitCode::kPermission : ExitCode::kUnavailable,
                        .phase = "connect",
                        .text = fmt::format("cannot connect to {} through its proxy ({}): {}", target_.host,
                                            proxy_->command(), said.empty() ? error() : said)},
                       !refused && said.find("kex_exchange_identification") != std::string::npos};
  }
  std::string text = error();
  bool dropped = text.find("kex error") == std::string::npos && text.find("no match") == std::string::npos;
  throw ConnectError{
      {.phase = "connect", .text = fmt::format("the handshake with {} port {} failed: {}", host_, port_, text)},
      dropped};
}

short SshSession::poll_events(bool reading) const {
  bool writing = (ssh_get_poll_flags(session_) & SSH_WRITE_PENDING) != 0;
  return static_cast<short>((reading ? POLLIN : 0) | (writing ? POLLOUT : 0));
}

void SshSession::wait_for_packets(const char* phase) {
  if (deadline_.passed()) {
    std::string said = proxy_ ? last_lines(proxy_->errors(), 2) : std::string();
    throw ConnectError{{.phase = phase,
                        .text = fmt::format("{} port {} did not answer within {} s{}", host_, port_,
                                            static_cast<double>(options_.connect_timeout.count()) / 1000,
                                            said.empty() ? "" : fmt::format(" (its proxy said: {})", said))}};
  }
  interrupt_.wait_for(ssh_get_fd(session_), poll_events(true), deadline_);
}

ssh_channel SshSession::start(const std::string& command, ssh_channel_callbacks_struct& callbacks) {
  ssh_channel channel = ssh_channel_new(session_);  // freed with the session
  if (channel == nullptr) throw ConnectError{{.phase = "start", .text = "libssh: " + error()}};
  ssh_set_channel_callbacks(channel, &callbacks);  // before the start: a short command may end before its start is
                                                   // answered
  if (until_done(SSH_AGAIN, "start", [&] { return ssh_channel_open_session(channel); }) != SSH_OK) {
    throw ConnectError{{.phase = "start", .text = fmt::format("{} refuses a session: {}", target_.host, error())}};
  }
  if (until_done(SSH_AGAIN, "start", [&] { return ssh_channel_request_exec(channel, command.c_str()); }) != SSH_OK) {
    throw ConnectError{
        {.phase = "start", .text = fmt::format("{} refuses to run a command: {}", target_.host, error())}};
  }
  return channel;
}

}  // namespace dslaunch::spawn
