// What clients send that is good, bad, too large, too slow or half, and what they get.
#include "http/server.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/format.hpp"
#include "ports/held_port.hpp"

using namespace dslaunch;
using namespace std::chrono_literals;
using http::Exchange;
using http::Limits;
using http::Reply;
using http::Request;

namespace {

// A client that sends any bytes.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  void send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const auto count = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count < 0) return;  // the server has closed the connection
      sent += static_cast<size_t>(count);
    }
  }
  void end_sending() { ::shutdown(fd_.get(), SHUT_WR); }

  // Until the server has closed the connection.
  std::string read_all() {
    std::string out;
    while (read_more(out)) {
    }
    return out;
  }
  // Up to this text.
  std::string read_to(const std::string& end) {
    std::string out;
    while (out.find(end) == out.npos && read_more(out)) {
    }
    return out;
  }

 private:
  bool read_more(std::string& out) {
    pollfd ready{fd_.get(), POLLIN, 0};
    REQUIRE(::poll(&ready, 1, 20'000) == 1);
    char bytes[4096];
    const auto count = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    if (count > 0) out.append(bytes, static_cast<size_t>(count));
    return count > 0;
  }

  UniqueFd fd_;
};

// Answers with the request's body, "/hold" when it is told to, "/stream" in three parts.
class EchoServer {
 public:
  explicit EchoServer(const Limits& limits = {}) {
    auto held = std::get<ports::HeldPort>(ports::hold_port("127.0.0.1", 0));
    port_ = held.port;
    http::Handlers handlers;
    handlers.refuse = [](const Request& head) -> std::optional<Reply> {
      if (head.target == "/forbidden") return Reply{.status = 401, .body = "no"};
      return std::nullopt;
    };
    handlers.handle = [this](const Request& request, std::shared_ptr<Exchange> exchange) {
      handle(request, std::move(exchange));
    };
    handlers.error_reply = [](int status, const std::string& message) {
      return Reply{.status = status, .body = message};
    };
    server_.emplace(std::move(held.listener), limits, std::move(handlers));
  }

  uint16_t port() const { return port_; }
  http::Server& server() { return *server_; }

  std::shared_ptr<Exchange> take_held() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !held_.empty(); });
    auto exchange = std::move(held_.back());
    held_.pop_back();
    return exchange;
  }

 private:
  void handle(const Request& request, std::shared_ptr<Exchange> exchange) {
    if (request.target == "/throw") throw std::runtime_error("for the test");
    if (request.target == "/hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      arrived_.notify_all();
    } else if (request.target == "/stream") {
      exchange->begin_stream("text/event-stream");
      for (const char* part : {"one", "", "two", "three"}) exchange->write(part);
      exchange->end_stream();
    } else {
      exchange->reply({.body = fmt::format("{} {}", request.method, request.body), .content_type = "text/plain"});
    }
  }

  uint16_t port_ = 0;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::optional<http::Server> server_;  // last: its thread uses the members above
};

std::string post(const std::string& body, const std::string& more = "") {
  return fmt::format("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{}\r\n{}", body.size(), more, body);
}

std::string status_of(const std::string& response) {
  return response.substr(0, response.find("\r\n"));
}

const std::string kGet = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

}  // namespace

TEST_CASE("requests of one connection are answered one after the other", "[http][server]") {
  EchoServer echo;
  Client client(echo.port());
  client.send(post("first"));
  CHECK(client.read_to("POST first").starts_with("HTTP/1.1 200 OK\r\n"));
  client.send(post("second") + post("third"));  // without waiting for the answer
  client.read_to("POST second");
  client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string rest = client.read_all();
  CHECK(rest.find("Connection: close") != rest.npos);
  CHECK(rest.ends_with("GET "));
  CHECK(echo.server().counts().connections == 1);
}

TEST_CASE("a client that asks first may then send its body", "[http][server]") {
  EchoServer echo;
  Client client(echo.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  CHECK(client.read_to("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  client.read_to("POST ab");
}

TEST_CASE("a stream arrives in chunks, for HTTP/1.0 up to the connection's end", "[http][server]") {
  EchoServer echo;
  Client client(echo.port());
  client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(client.read_to("0\r\n\r\n").ends_with("3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n"));
  client.send(post("again"));
  client.read_to("POST again");
  Client old(echo.port());
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  CHECK(old.read_all().ends_with("\r\n\r\nonetwothree"));
}

TEST_CASE("what is not a request that the server takes gets a 4xx, and its connection is closed", "[http][server]") {
  const Limits limits{.max_header_bytes = 1000, .max_body_bytes = 100};
  EchoServer echo(limits);
  struct Case {
    std::string sent, status;
  };
  const std::string many(2000, 'a');
  for (const auto& [sent, status] : std::vector<Case>{
           {"garbage\r\n\r\n", "400 Bad Request"},
           {"GET / HTTP/9.9\r\n\r\n", "400 Bad Request"},
           {std::string("\0\1\2\xff\xfe\r\n\r\n", 9), "400 Bad Request"},
           {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "400 Bad Request"},
           {"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc", "400 Bad Request"},
           {"GET / HTTP/1.1\r\nbad header\r\n\r\n", "400 Bad Request"},
           {"GET / HTTP/1.1\r\nHost: " + many + "\r\n\r\n", "431 Request Header Fields Too Large"},
           {"GET /" + many, "431 Request Header Fields Too Large"},
           {post(many), "413 Payload Too Large"},
           {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", "413 Payload Too Large"},
           {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "411 Length Required"},
           {"POST /forbidden HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\n", "401 Unauthorized"},
           {"GET /throw HTTP/1.1\r\nHost: a\r\n\r\n", "500 Internal Server Error"},
       }) {
    INFO(sent.substr(0, 80));
    Client client(echo.port());
    client.send(sent);
    const std::string response = client.read_all();
    CHECK(status_of(response) == "HTTP/1.1 " + status);
    CHECK(response.find("Connection: close") != response.npos);
  }
}

TEST_CASE("a request that ends early is answered, a connection without one closed", "[http][server]") {
  EchoServer echo;
  for (const char* half :
       {"GET / HT", "GET / HTTP/1.1\r\nHost: a\r\n", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"}) {
    INFO(half);
    Client client(echo.port());
    client.send(half);
    client.end_sending();
    CHECK(status_of(client.read_all()) == "HTTP/1.1 400 Bad Request");
  }
  Client silent(echo.port());
  silent.end_sending();
  CHECK(silent.read_all().empty());
}

TEST_CASE("slow clients have a time limit", "[http][server]") {
  EchoServer echo({.header_timeout = 50ms, .idle_timeout = 50ms, .body_timeout = 50ms});
  for (const char* begun : {"GET / HTTP", "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"}) {
    Client client(echo.port());
    client.send(begun);
    CHECK(status_of(client.read_all()) == "HTTP/1.1 408 Request Timeout");
  }
  Client silent(echo.port());
  CHECK(silent.read_all().empty());
  Client idle(echo.port());
  idle.send(kGet);
  CHECK(status_of(idle.read_all()) == "HTTP/1.1 200 OK");
}

TEST_CASE("a client that does not read loses its connection", "[http][server]") {
  constexpr size_t kFew = size_t{4} << 20;
  const Limits limits =
      GENERATE(Limits{.write_timeout = 100ms}, Limits{.max_unsent_bytes = kFew}, Limits{.max_all_unsent_bytes = kFew});
  EchoServer echo(limits);
  Client client(echo.port());
  client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto exchange = echo.take_held();
  exchange->begin_stream("text/plain");
  while (!exchange->is_gone()) exchange->write(std::string(size_t{1} << 16, 'x'));
  exchange->end_stream();
  CHECK(echo.server().wait_until_answered(Deadline::after(10s)));
}

TEST_CASE("a client that leaves while it waits is noticed", "[http][server]") {
  EchoServer echo;
  std::shared_ptr<Exchange> exchange;
  {
    Client client(echo.port());
    client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    exchange = echo.take_held();
    CHECK_FALSE(exchange->is_gone());
  }
  CHECK(echo.server().wait_until_answered(Deadline::after(10s)));
  CHECK(exchange->is_gone());
  exchange->reply({.body = "nobody reads it"});
}

TEST_CASE("connections and the bytes of requests are bounded, and free again when they end", "[http][server]") {
  EchoServer echo({.max_connections = 2, .max_body_bytes = 100, .max_held_bytes = 150});
  const std::string body(100, 'b');
  auto first = std::make_unique<Client>(echo.port());
  first->send(fmt::format("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{}", body));
  auto exchange = echo.take_held();
  auto second = std::make_unique<Client>(echo.port());
  second->send(post(body));
  CHECK(status_of(second->read_to("\r\n\r\n")) == "HTTP/1.1 503 Service Unavailable");
  Client third(echo.port());
  CHECK(status_of(third.read_all()) == "HTTP/1.1 503 Service Unavailable");
  CHECK(echo.server().counts().refused_connections == 1);
  exchange->reply({.body = "done"});
  first->read_to("done");
  second->read_all();
  first->send(post(body));
  first->read_to(body);
}

TEST_CASE("a server that drains answers what it has, and then closes", "[http][server]") {
  EchoServer echo;
  Client idle(echo.port()), waiting(echo.port());
  idle.send(kGet);
  idle.read_to("GET ");
  waiting.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  auto exchange = echo.take_held();
  echo.server().drain();
  CHECK(idle.read_all().empty());
  CHECK_FALSE(echo.server().wait_until_answered(Deadline::after(0ms)));
  exchange->reply({.body = "late"});
  const std::string response = waiting.read_all();
  CHECK(response.find("Connection: close") != response.npos);
  CHECK(response.ends_with("late"));
  CHECK(echo.server().wait_until_answered(Deadline::after(10s)));
  exchange.reset();
}

TEST_CASE("an exchange that is dropped answers 500, in a stream it closes the connection", "[http][server]") {
  EchoServer echo;
  Client client(echo.port()), streaming(echo.port());
  client.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  echo.take_held().reset();
  CHECK(status_of(client.read_all()) == "HTTP/1.1 500 Internal Server Error");
  streaming.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
  auto exchange = echo.take_held();
  exchange->begin_stream("text/plain");
  exchange.reset();
  CHECK_FALSE(streaming.read_all().ends_with("0\r\n\r\n"));
}
