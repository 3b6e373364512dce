#include "spawn/ssh/libssh/dial.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <memory>
#include <mutex>
#include <optional>

#include "base/format.hpp"
#include "base/host_addresses.hpp"
#include "ports/connect_first.hpp"
#include "spawn/link_thread.hpp"

namespace dslaunch::spawn {
namespace {

// getaddrinfo(3) has no deadline: a separate thread waits for it, and is abandoned when this call gives up.
struct Question {
  std::mutex mutex;
  std::optional<Result<AddressList>> answer;
  Interrupt answered;
};

AddressList resolve(const std::string& host, uint16_t port, Deadline deadline, const Interrupt& interrupt) {
  if (auto numeric = look_up_host(host.c_str(), port, AI_NUMERICHOST); numeric.ok()) return *std::move(numeric);
  auto question = std::make_shared<Question>();
  start_link_thread([question, host, port] {
    auto answer = look_up_host(host.c_str(), port);
    std::lock_guard lock(question->mutex);
    question->answer = std::move(answer);
    question->answered.set();
  });
  if (!interrupt.wait_for(question->answered.fd(), POLLIN, deadline)) {
    throw ConnectError{{.phase = "resolve", .text = fmt::format("timed out resolving '{}'", host)}};
  }
  std::lock_guard lock(question->mutex);
  Result<AddressList>& answer = *question->answer;
  if (answer.ok()) return *std::move(answer);
  throw ConnectError{
      {.phase = "resolve",
       .text = fmt::format("cannot resolve '{}': {}; check the hostfile and ~/.ssh/config", host, answer.error())}};
}

std::string advice(int error) {
  switch (error) {
    case ECONNREFUSED:
      return "the host is up, but no sshd listens on that port (--ssh_port names another)";
    case ETIMEDOUT:
      return "the host is down, or a firewall drops the packets";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "there is no route to that address";
    default:
      return "";
  }
}

}  // namespace

UniqueFd dial_tcp(const std::string& host, uint16_t port, Deadline deadline, const Interrupt& interrupt) {
  const AddressList addresses = resolve(host, port, deadline, interrupt);
  ports::FirstConnection connection = ports::connect_first(
      addresses.get(), deadline, [&](std::vector<pollfd>& polls, Deadline until) { interrupt.wait(polls, until); });
  if (connection.fd.valid()) {
    int on = 1;
    ::setsockopt(connection.fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return std::move(connection.fd);
  }
  std::string tried;
  for (const auto& failure : connection.failures) {
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ",
                         numeric_address(failure.address->ai_addr, failure.address->ai_addrlen),
                         describe_errno(failure.error_number));
  }
  std::string hint = advice(connection.failures.back().error_number);
  throw ConnectError{
      {.phase = "connect",
       .text = fmt::format("cannot connect to {} port {} ({}){}", host, port, tried, hint.empty() ? "" : ": " + hint)}};
}

}  // namespace dslaunch::spawn
