// Whatever bytes a client sends: the server answers with HTTP or closes the connection, and the next client is
// answered. The body of a request that arrives whole is read as one to /v1/completions.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>
#include <variant>

#include "http/server.hpp"
#include "ports/held_port.hpp"
#include "runtime/engine/serve/api_error.hpp"
#include "runtime/engine/serve/completion_request.hpp"

namespace {

using namespace dslaunch;
using runtime::engine::serve::ApiError;

http::Reply answer_to(const http::Request& request) try {
  const auto completion = runtime::engine::serve::parse_completion(request.body, "net");
  if (completion.prompts.empty() || completion.num_choices < 1) std::abort();
  return {};
} catch (const ApiError& error) {
  if (error.status() < 400 || error.status() > 499) std::abort();
  return error.reply();
}

uint16_t start_server() {
  auto held = std::get<ports::HeldPort>(ports::hold_port("127.0.0.1", 0));
  http::Handlers handlers;
  handlers.handle = [](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
    exchange->reply(answer_to(request));
  };
  handlers.error_reply = [](int status, const std::string& message) { return ApiError(status, message).reply(); };
  const uint16_t port = held.port;
  // Never ends: the process ends before it.
  static const auto* const server = new http::Server(std::move(held.listener), {}, std::move(handlers));
  return server != nullptr ? port : 0;
}

std::string exchange(uint16_t port, const std::string& sent) {
  const UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const linger reset{1, 0};  // no port is left waiting, of which there are too few
  ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  if (::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  size_t done = 0;
  while (done < sent.size()) {
    const auto count = ::send(client.get(), sent.data() + done, sent.size() - done, MSG_NOSIGNAL);
    if (count <= 0) break;  // answered and closed
    done += static_cast<size_t>(count);
  }
  ::shutdown(client.get(), SHUT_WR);
  std::string got;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::recv(client.get(), bytes, sizeof bytes, 0)) > 0;) {
    got.append(bytes, static_cast<size_t>(count));
  }
  return got;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const uint16_t port = start_server();
  const std::string input(reinterpret_cast<const char*>(data), size);
  const std::string raw = exchange(port, input);
  if (!raw.empty() && !raw.starts_with("HTTP/1.1 ")) std::abort();
  try {
    runtime::engine::serve::parse_completion(input, "net");
  } catch (const ApiError& error) {
    error.reply();
  }
  return 0;
}
