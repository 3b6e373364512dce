// One io thread owns everything but the counters behind the mutex. A connection goes hello -> proof -> frames; until it
// is admitted it may cost us two fixed blocks of bytes, one timer and no more.
#include "rendezvous/store_server.hpp"

#include <sys/socket.h>

#include <boost/asio.hpp>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "rendezvous/store_state.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/token_proof.hpp"

namespace dslaunch::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

namespace {

constexpr size_t kMostUnprovenConnections = 1024;  // the oldest is dropped beyond that
constexpr size_t kMostUnsentBytes = 256u << 20;    // a client that does not read is dropped
constexpr size_t kMostAnnouncedLosses = 64;        // more say nothing new and would grow as the square of the world
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after EMFILE and its kind

}  // namespace

class StoreServer::Impl {
 public:
  Impl(UniqueFd listener, StoreServerOptions options);
  ~Impl();

  uint16_t port() const { return port_; }
  std::vector<int> joined_ranks() const {
    std::lock_guard lock(mutex_);
    return joined_;
  }
  bool wait_until_all_left(Deadline deadline) const {
    std::unique_lock lock(mutex_);
    auto done = [&] { return num_connected_ == 0; };
    if (deadline.is_never()) return changed_.wait(lock, done), true;
    return changed_.wait_until(lock, deadline.when(), done);
  }

 private:
  class Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void accept_next();
  void admit(const ConnectionPtr& connection);
  void handle(const ConnectionPtr& connection, const wire::Frame& frame);
  void handle_wait(const ConnectionPtr& connection, const wire::Frame& frame);
  void expire_after(uint64_t timeout_ms, StoreState::Ticket ticket);
  void run();
  void lose(int rank, const std::string& reason);
  void forget(const ConnectionPtr& connection, const std::string& reason);
  void publish();
  void shut_down();

  const StoreServerOptions options_;
  uint16_t port_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<int> joined_;   // guarded by mutex_
  size_t num_connected_ = 0;  // guarded by mutex_

  // Owned by the io thread.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_timer_{io_};
  StoreState state_;
  std::list<ConnectionPtr> unproven_;
  std::map<int, ConnectionPtr> by_rank_;
  std::map<StoreState::Ticket, std::unique_ptr<asio::steady_timer>> timers_;
  size_t announced_losses_ = 0;
  bool stopping_ = false;

  std::thread thread_;  // last: everything above exists when it starts
};

class StoreServer::Impl::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Impl& server, tcp::socket socket) : server_(server), socket_(std::move(socket)), timer_(server.io_) {}

  int rank() const { return rank_; }
  bool closed() const { return closed_; }

  void start() {
    prepare_stream_socket(socket_.native_handle());
    timer_.expires_after(server_.options_.handshake_timeout);
    timer_.async_wait([self = shared_from_this()](Code code) {
      if (!code && self->rank_ < 0) self->close("did not prove the job's token in time");
    });
    // The first byte alone is enough to turn away a client of another protocol.
    read(1, [this] {
      if (input_[0] != wire::kMagic[0]) return close("speaks another protocol");
      std::string first = input_;
      read(wire::kClientHelloBytes - 1, [this, first] { read_hello(first + input_); });
    });
  }

  void send(const wire::Frame& frame) { send_bytes(wire::encode(frame)); }

  void close(const std::string& reason) {
    if (closed_) return;
    closed_ = true;
    timer_.cancel();
    Code ignored;
    socket_.close(ignored);
    server_.forget(shared_from_this(), reason);
  }

  // Sends what is queued before the connection ends.
  void close_after_sending() {
    closing_ = true;
    if (output_.empty()) close("refused");
  }

 private:
  void read(size_t count, std::function<void()> then) {
    input_.resize(count);
    asio::async_read(socket_, asio::buffer(input_),
                     [self = shared_from_this(), then = std::move(then)](Code code, size_t) {
                       if (self->closed_) return;
                       if (code == asio::error::eof) return self->close("connection closed");
                       if (code) return self->close("connection lost: " + code.message());
                       try {
                         then();
                       } catch (const wire::WireError& error) {
                         self->close(std::string("broke the protocol: ") + error.what());
                       }
                     });
  }

  void read_hello(const std::string& block) {
    auto hello = wire::decode_client_hello(block);
    client_nonce_ = hello.nonce;
    server_nonce_ = fresh_nonce();
    send_bytes(wire::encode(wire::ServerHello{wire::kVersion, server_nonce_}));
    bool known_version = hello.version == wire::kVersion;
    read(wire::kClientProofBytes, [this, known_version] {
      if (!known_version) return refuse(wire::Admission::kWrongVersion);
      read_proof();
    });
  }

  void read_proof() {
    auto claim = wire::decode_client_proof(input_);
    const auto& token = server_.options_.token;
    auto expected = client_proof(token, client_nonce_, server_nonce_, wire::proven_part(input_));
    if (!same_proof(claim.proof, expected)) return refuse(wire::Admission::kWrongToken);
    auto world = static_cast<uint32_t>(server_.options_.world_size);
    if (claim.world_size != world || claim.rank >= world) return refuse(wire::Admission::kWrongWorld);
    if (server_.state_.is_present(static_cast<int>(claim.rank))) return refuse(wire::Admission::kRankTaken);
    rank_ = static_cast<int>(claim.rank);
    host_ = claim.host;
    timer_.cancel();
    // Before the answer: a rank that knows it was admitted is counted by joined_ranks().
    server_.state_.join(rank_, host_);
    server_.publish();
    send_bytes(wire::encode(
        wire::ServerProof{wire::Admission::kAdmitted, server_proof(token, client_nonce_, server_nonce_), world}));
    server_.admit(shared_from_this());
    read_frame();
  }

  void refuse(wire::Admission why) {
    send_bytes(wire::encode(wire::ServerProof{why, {}, static_cast<uint32_t>(server_.options_.world_size)}));
    close_after_sending();
  }

  void read_frame() {
    read(wire::kLengthBytes, [this] {
      read(wire::decode_length(input_), [this] {
        server_.handle(shared_from_this(), wire::decode(input_));
        if (!closed_) read_frame();
      });
    });
  }

  void send_bytes(std::string bytes) {
    if (closed_ || closing_) return;
    unsent_bytes_ += bytes.size();
    if (unsent_bytes_ > kMostUnsentBytes) {
      // Posted: closing tells the state, which may be in the middle of answering.
      closing_ = true;
      return asio::post(server_.io_, [self = shared_from_this()] { self->close("does not read what it asked for"); });
    }
    output_.push_back(std::move(bytes));
    if (output_.size() == 1) write_next();
  }

  void write_next() {
    asio::async_write(socket_, asio::buffer(output_.front()), [self = shared_from_this()](Code code, size_t count) {
      if (self->closed_) return;
      if (code) return self->close("connection lost: " + code.message());
      self->unsent_bytes_ -= count;
      self->output_.pop_front();
      if (!self->output_.empty()) return self->write_next();
      if (self->closing_) self->close("refused");
    });
  }

  Impl& server_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  wire::Nonce client_nonce_{}, server_nonce_{};
  int rank_ = -1;
  std::string host_;
  std::string input_;
  std::deque<std::string> output_;
  size_t unsent_bytes_ = 0;
  bool closing_ = false, closed_ = false;
};

StoreServer::Impl::Impl(UniqueFd listener, StoreServerOptions options)
    : options_(std::move(options)), state_(options_.world_size, options_.rank_hosts) {
  port_ = local_port(listener.get());
  auto protocol = address_family(listener.get()) == AF_INET6 ? tcp::v6() : tcp::v4();
  acceptor_.assign(protocol, listener.release());
  acceptor_.non_blocking(true);
  accept_next();
  thread_ = std::thread([this] { run(); });
}

void StoreServer::Impl::run() {
  try {
    io_.run();
  } catch (const std::exception& error) {
    // The clients see their connections end and name the store.
    log::error("store on port {}: stopped by an error of its own: {}", port_, error.what());
    Code ignored;
    acceptor_.close(ignored);
    by_rank_.clear();
    unproven_.clear();
  }
}

StoreServer::Impl::~Impl() {
  asio::post(io_, [this] { shut_down(); });
  thread_.join();
}

// Tells the clients that this end is no loss, waits a moment for the bytes to go out, then ends the loop.
void StoreServer::Impl::shut_down() {
  stopping_ = true;
  acceptor_.close();
  accept_timer_.cancel();
  timers_.clear();
  for (auto connections = by_rank_; auto& [rank, connection] : connections) {
    connection->send({wire::Type::kServerLeaves, 0, {}});
    connection->close_after_sending();
  }
  for (auto connections = unproven_; auto& connection : connections) connection->close("the store ends");
  auto last_call = std::make_shared<asio::steady_timer>(io_, std::chrono::milliseconds(500));
  last_call->async_wait([this, last_call](Code) { io_.stop(); });
  if (by_rank_.empty()) io_.stop();
}

void StoreServer::Impl::accept_next() {
  acceptor_.async_accept([this](Code code, tcp::socket socket) {
    if (stopping_) return;
    if (code) {
      log::warning("store on port {}: accepting a connection failed: {}", port_, code.message());
      accept_timer_.expires_after(kAcceptPause);
      return accept_timer_.async_wait([this](Code) {
        if (!stopping_) accept_next();
      });
    }
    if (unproven_.size() >= kMostUnprovenConnections) unproven_.front()->close("too many connections without proof");
    auto connection = std::make_shared<Connection>(*this, std::move(socket));
    unproven_.push_back(connection);
    connection->start();
    accept_next();
  });
}

void StoreServer::Impl::admit(const ConnectionPtr& connection) {
  unproven_.remove(connection);
  by_rank_[connection->rank()] = connection;
  publish();
  for (const auto& lost : state_.lost_ranks()) connection->send({wire::Type::kRankLost, 0, encode_lost_rank(lost)});
}

void StoreServer::Impl::handle(const ConnectionPtr& connection, const wire::Frame& frame) {
  wire::Reader reader(frame.body);
  Answer answer;
  switch (frame.type) {
    case wire::Type::kGet:
    case wire::Type::kBarrier:
      return handle_wait(connection, frame);
    case wire::Type::kSet: {
      std::string key = reader.text(wire::kMaxKeyBytes), value = reader.text(wire::kMaxValueBytes);
      reader.expect_end();
      answer = state_.set(key, std::move(value));
      break;
    }
    case wire::Type::kTryGet: {
      std::string key = reader.text(wire::kMaxKeyBytes);
      reader.expect_end();
      answer = state_.try_get(key);
      break;
    }
    case wire::Type::kAdd: {
      std::string key = reader.text(wire::kMaxKeyBytes);
      auto amount = static_cast<int64_t>(reader.u64());
      reader.expect_end();
      answer = state_.add(key, amount);
      break;
    }
    case wire::Type::kCompareAndSet: {
      std::string key = reader.text(wire::kMaxKeyBytes), expected = reader.text(wire::kMaxValueBytes);
      std::string desired = reader.text(wire::kMaxValueBytes);
      reader.expect_end();
      answer = state_.compare_and_set(key, expected, desired);
      break;
    }
    case wire::Type::kReportFailure:
      lose(connection->rank(), reader.text(wire::kMaxTextBytes));
      break;
    case wire::Type::kLeave:
      state_.leave(connection->rank());
      publish();
      break;
    default:
      throw wire::WireError("a client does not send this type");
  }
  connection->send(
      {wire::Type::kReply, frame.request,
       wire::Writer().u8(static_cast<uint8_t>(answer.status)).bytes(std::string_view(answer.body)).take()});
}

void StoreServer::Impl::handle_wait(const ConnectionPtr& connection, const wire::Frame& frame) {
  wire::Reader reader(frame.body);
  auto timer_of = std::make_shared<StoreState::Ticket>(0);
  auto reply = [this, timer_of, weak = std::weak_ptr(connection), request = frame.request](const Answer& answer) {
    timers_.erase(*timer_of);
    auto to = weak.lock();
    if (!to) return;
    to->send({wire::Type::kReply, request,
              wire::Writer().u8(static_cast<uint8_t>(answer.status)).bytes(std::string_view(answer.body)).take()});
  };
  std::string name = reader.text(wire::kMaxKeyBytes);
  int count = frame.type == wire::Type::kBarrier ? static_cast<int>(reader.u32()) : 0;
  uint64_t timeout_ms = reader.u64();
  reader.expect_end();
  int rank = connection->rank();
  auto ticket =
      frame.type == wire::Type::kBarrier ? state_.barrier(rank, name, count, reply) : state_.get(rank, name, reply);
  if (!ticket || timeout_ms == wire::kNoTimeout) return;
  *timer_of = ticket;
  expire_after(timeout_ms, ticket);
}

void StoreServer::Impl::expire_after(uint64_t timeout_ms, StoreState::Ticket ticket) {
  constexpr uint64_t kCap = 30ull * 24 * 3600 * 1000;
  std::chrono::milliseconds wait(std::min(timeout_ms, kCap));
  auto& timer = timers_[ticket] = std::make_unique<asio::steady_timer>(io_, wait);
  timer->async_wait([this, ticket, wait](Code code) {
    if (code) return;
    state_.expire(ticket, static_cast<double>(wait.count()) / 1000);
  });
}

void StoreServer::Impl::lose(int rank, const std::string& reason) {
  auto news = state_.lose(rank, reason);
  if (!news) return;
  publish();
  if (++announced_losses_ > kMostAnnouncedLosses) return;
  for (auto connections = by_rank_; auto& [to, connection] : connections) {
    if (to != rank) connection->send({wire::Type::kRankLost, 0, encode_lost_rank(*news)});
  }
}

void StoreServer::Impl::forget(const ConnectionPtr& connection, const std::string& reason) {
  unproven_.remove(connection);
  auto found = by_rank_.find(connection->rank());
  if (found != by_rank_.end() && found->second == connection) {
    by_rank_.erase(found);
    if (!stopping_) lose(connection->rank(), reason);
  }
  if (stopping_ && by_rank_.empty()) io_.stop();
}

void StoreServer::Impl::publish() {
  std::lock_guard lock(mutex_);
  joined_ = state_.joined_ranks();
  num_connected_ = 0;
  for (int rank : joined_) num_connected_ += state_.is_present(rank);
  changed_.notify_all();
}

StoreServer::StoreServer(UniqueFd listener, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(options))) {}
StoreServer::~StoreServer() = default;
uint16_t StoreServer::port() const {
  return impl_->port();
}
std::vector<int> StoreServer::joined_ranks() const {
  return impl_->joined_ranks();
}
bool StoreServer::wait_until_all_left(Deadline deadline) const {
  return impl_->wait_until_all_left(deadline);
}

}  // namespace dslaunch::rendezvous
