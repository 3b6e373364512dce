#include "http/server.hpp"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/blocked_signals.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "http/connection.hpp"

namespace dslaunch::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after EMFILE and similar errors

tcp protocol_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4();
}

}  // namespace

class Server::Impl final : public Connection::Owner {
 public:
  Impl(UniqueFd listener, const Limits& limits, Handlers handlers) : limits_(limits), handlers_(std::move(handlers)) {
    const tcp protocol = protocol_of(listener.get());
    acceptor_.assign(protocol, listener.release());
    acceptor_.non_blocking(true);
    accept_next();
    const BlockedSignals blocked;
    thread_ = std::thread([this] { io_.run(); });
  }

  ~Impl() override {
    asio::post(io_, [this] {
      stop_accepting();
      for (auto open = connections_; auto& [key, connection] : open) connection->close();
      work_.reset();
    });
    thread_.join();
  }

  void drain() {
    is_draining_ = true;
    asio::post(io_, [this] {
      stop_accepting();
      for (auto open = connections_; auto& [key, connection] : open) connection->close_if_idle();
    });
  }

  bool wait_until_answered(Deadline deadline) const {
    std::unique_lock lock(mutex_);
    while (num_answering_ > 0) {
      if (deadline.passed()) return false;
      answered_.wait_for(lock, deadline.left());
    }
    return true;
  }

  Counts counts() const { return {num_open_, num_accepted_, num_refused_}; }

  const Limits& limits() const override { return limits_; }
  const Handlers& handlers() const override { return handlers_; }
  bool is_draining() const override { return is_draining_; }

  bool take_bytes(size_t bytes) override {
    if (held_bytes_ + bytes > limits_.max_held_bytes) return false;
    held_bytes_ += bytes;
    return true;
  }
  void return_bytes(size_t bytes) override { held_bytes_ -= bytes; }
  bool add_unsent(size_t bytes) override { return (unsent_bytes_ += bytes) <= limits_.max_all_unsent_bytes; }
  void remove_unsent(size_t bytes) override { unsent_bytes_ -= bytes; }

  void count_answering(int change) override {
    {
      const std::lock_guard lock(mutex_);
      num_answering_ += change;
    }
    answered_.notify_all();
  }

  void on_closed(Connection& connection) override {
    connections_.erase(&connection);
    num_open_ = connections_.size();
  }

 private:
  void stop_accepting() {
    Code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel();
  }

  void accept_next() {
    acceptor_.async_accept([this](Code code, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (!code) begin(std::move(socket));
      if (!code || code == asio::error::connection_aborted) return accept_next();
      // Descriptors or memory are used up: clients wait in the listener's queue meanwhile.
      accept_timer_.expires_after(kAcceptPause);
      accept_timer_.async_wait([this](Code) {
        if (acceptor_.is_open()) accept_next();
      });
    });
  }

  void begin(tcp::socket socket) {
    if (connections_.size() >= limits_.max_connections) return turn_away(std::move(socket));
    ++num_accepted_;
    auto connection = std::make_shared<Connection>(*this, std::move(socket));
    connections_.emplace(connection.get(), connection);
    num_open_ = connections_.size();
    connection->start();
  }

  // Without waiting: what the socket's buffer does not take is lost.
  void turn_away(tcp::socket socket) {
    ++num_refused_;
    const Reply reply = handlers_.error_reply(503, fmt::format("the server has {} connections, which are all that it "
                                                               "takes; try again later",
                                                               limits_.max_connections));
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nConnection: close\r\nRetry-After: 1\r\n"
        "Content-Length: {}\r\n\r\n{}",
        reply.content_type, reply.body.size(), reply.body);
    ::send(socket.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    Code ignored;
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  const Limits limits_;
  const Handlers handlers_;
  std::atomic<bool> is_draining_{false};
  std::atomic<size_t> num_open_{0};
  std::atomic<uint64_t> num_accepted_{0}, num_refused_{0};

  mutable std::mutex mutex_;
  mutable std::condition_variable answered_;
  int num_answering_ = 0;  // guarded by mutex_

  // Owned by the io thread.
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_timer_{io_};
  std::map<Connection*, std::shared_ptr<Connection>> connections_;
  size_t held_bytes_ = 0, unsent_bytes_ = 0;

  std::thread thread_;  // last: everything above exists when it starts
};

Server::Server(UniqueFd listener, const Limits& limits, Handlers handlers)
    : impl_(std::make_unique<Impl>(std::move(listener), limits, std::move(handlers))) {}

Server::~Server() = default;

void Server::drain() {
  impl_->drain();
}

bool Server::wait_until_answered(Deadline deadline) const {
  return impl_->wait_until_answered(deadline);
}

Counts Server::counts() const {
  return impl_->counts();
}

}  // namespace dslaunch::http
