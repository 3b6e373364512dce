// An HTTP/1.1 server on one thread of its own. What a client can make it hold is bounded: connections, headers, bodies
// of requests one by one and together, unsent responses, and the time for each of them. A request that is not HTTP, too
// large or too slow is answered (400, 408, 411, 413, 431) and its connection closed.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"
#include "http/exchange.hpp"

namespace dslaunch::http {

struct Limits {
  size_t max_connections = 4096;  // beyond it: 503, and closed
  size_t max_header_bytes = size_t{16} << 10;
  size_t max_body_bytes = size_t{8} << 20;
  size_t max_held_bytes = size_t{256} << 20;  // of the bodies of all requests that are not answered yet; beyond it: 503
  // Of a response, and of all; beyond it the client whose response grows is one that does not read. A reply may be
  // larger than the first.
  size_t max_unsent_bytes = size_t{64} << 20, max_all_unsent_bytes = size_t{512} << 20;
  std::chrono::milliseconds header_timeout{15'000};  // of a connection's first header
  std::chrono::milliseconds idle_timeout{60'000};    // from a response to the end of the next header
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};  // for each 64 KiB of a response
};

// Called on the server's thread, which they must not block.
struct Handlers {
  // Of a request whose body has not been read: what refuses it, if anything.
  std::function<std::optional<Reply>(const Request& head)> refuse = [](const Request&) { return std::nullopt; };
  std::function<void(Request request, std::shared_ptr<Exchange> exchange)> handle;
  // The body of a response that this server gives itself.
  std::function<Reply(int status, const std::string& message)> error_reply;
};

struct Counts {
  size_t open_connections = 0;
  uint64_t connections = 0, refused_connections = 0;
};

class Server {
 public:
  // `listener`: a bound and listening TCP socket (ports::hold_port); the server takes ownership.
  Server(UniqueFd listener, const Limits& limits, Handlers handlers);
  // Closes all connections. Exchanges must be gone.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Accepts no connections any more, and closes those without a request; each of the others after its response.
  void drain();
  // Until no request is being answered; false at the deadline.
  bool wait_until_answered(Deadline deadline) const;
  Counts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch::http
