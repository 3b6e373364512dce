// The listener and the thread: which clients may connect, which protocol a connection speaks, and the shutdown.
// rank_session.cpp and torch_session.cpp implement the two protocols.
#include "rendezvous/store_server.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "ports/held_port.hpp"
#include "rendezvous/rank_session.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/torch_session.hpp"
#include "rendezvous/wire.hpp"

namespace dslaunch::rendezvous {

namespace asio = boost::asio;
using asio::ip::tcp;
using Code = boost::system::error_code;

namespace {

// Beyond this number the oldest connection without proof is dropped; a whole world starting at once must not count as a
// flood.
constexpr size_t kMaxUnprovenConnections = 1024;
constexpr size_t kMaxRefusalsTold = 16;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after EMFILE and similar errors
constexpr auto kLastCall = std::chrono::milliseconds(500);     // time to send the final messages

std::set<asio::ip::address> parse_addresses(const std::vector<std::string>& texts) {
  std::set<asio::ip::address> out;
  for (const auto& text : texts) {
    Code code;
    out.insert(asio::ip::make_address(text, code));
    DSL_CHECK(!code, fmt::format("'{}' is not a numeric address to admit torch's clients from", text));
  }
  return out;
}

}  // namespace

class StoreServer::Impl final : public StoreConnection::Owner {
 public:
  Impl(UniqueFd listener, StoreServerOptions options);
  ~Impl();

  uint16_t port() const { return port_; }
  const RankRegistry& board() const { return board_; }

 private:
  std::unique_ptr<StoreConnection::Session> open_session(StoreConnection& connection, uint8_t first_byte) override;
  void on_proven(StoreConnection& connection) override;
  void on_ended(StoreConnection& connection) override;

  bool admits_torch(StoreConnection& connection);
  bool admits_address(const StoreConnection& connection);
  bool admits_user(StoreConnection& connection);
  void accept_next();
  void begin(tcp::socket socket);
  void drop_overdue();
  void run();
  void shut_down();
  void stop_when_all_ended();

  struct Unproven {
    StoreConnection::Ptr connection;
    asio::steady_timer::time_point due;
  };

  const std::chrono::milliseconds handshake_timeout_;
  const size_t most_unproven_;
  const bool serves_torch_, torch_from_this_machine_;
  const std::set<asio::ip::address> torch_addresses_;
  uint16_t port_ = 0;
  RankRegistry board_;

  // Owned by the io thread.
  asio::io_context io_{1};
  tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_timer_{io_}, overdue_timer_{io_};
  RankSessions ranks_;
  TorchSessions torch_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Unproven> unproven_;  // in order of arrival, and so by due time
  std::map<uint64_t, StoreConnection*> proven_;
  std::set<asio::ip::address> refusals_told_;
  std::set<uid_t> users_told_;
  bool stopping_ = false;

  std::thread thread_;  // last: everything above exists when it starts
};

StoreServer::Impl::Impl(UniqueFd listener, StoreServerOptions options)
    : handshake_timeout_(options.handshake_timeout),
      most_unproven_(std::max(kMaxUnprovenConnections, 2 * static_cast<size_t>(options.world_size))),
      serves_torch_(options.torch_clients.has_value()),
      torch_from_this_machine_(serves_torch_ && options.torch_clients->from_this_machine),
      torch_addresses_(serves_torch_ ? parse_addresses(options.torch_clients->addresses)
                                     : std::set<asio::ip::address>()),
      ranks_(io_, board_, options.world_size, std::move(options.token), std::move(options.rank_hosts)),
      torch_(serves_torch_ ? options.torch_clients->max_held_bytes : 0) {
  port_ = ports::bound_port(listener.get());
  // Accepted sockets inherit the options: six system calls fewer per connection.
  prepare_stream_socket(listener.get());
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
    log::error("store on port {}: stopped by an internal error: {}", port_, error.what());
    Code ignored;
    acceptor_.close(ignored);
    // The clients see their connections end, and report the store by name.
    for (auto proven = proven_; auto& [id, connection] : proven) connection->close("the store has failed");
  }
}

StoreServer::Impl::~Impl() {
  asio::post(io_, [this] { shut_down(); });
  thread_.join();
}

// Tells the ranks that this end is not a loss, waits briefly until the bytes are sent, then ends the loop.
void StoreServer::Impl::shut_down() {
  stopping_ = true;
  acceptor_.close();
  accept_timer_.cancel();
  overdue_timer_.cancel();
  ranks_.announce_shutdown();
  torch_.close_all("the store is shutting down");
  for (auto unproven = unproven_; auto& [id, entry] : unproven) entry.connection->close("the store is shutting down");
  auto last_call = std::make_shared<asio::steady_timer>(io_, kLastCall);
  last_call->async_wait([this, last_call](Code) { io_.stop(); });
  stop_when_all_ended();
}

void StoreServer::Impl::stop_when_all_ended() {
  if (stopping_ && proven_.empty()) io_.stop();
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
    begin(std::move(socket));
    accept_next();
  });
}

void StoreServer::Impl::begin(tcp::socket socket) {
  if (unproven_.size() >= most_unproven_) {
    unproven_.begin()->second.connection->close("too many unauthenticated connections");
  }
  uint64_t id = next_id_++;
  auto connection = std::make_shared<StoreConnection>(*this, id, std::move(socket));
  unproven_.emplace(id, Unproven{connection, asio::steady_timer::clock_type::now() + handshake_timeout_});
  if (unproven_.size() == 1) drop_overdue();
  connection->start();
}

// One timer for all unproven connections: it expires for the oldest.
void StoreServer::Impl::drop_overdue() {
  auto now = asio::steady_timer::clock_type::now();
  while (!unproven_.empty() && unproven_.begin()->second.due <= now) {
    unproven_.begin()->second.connection->close("did not prove the job's token in time");
  }
  if (unproven_.empty()) return;
  overdue_timer_.expires_at(unproven_.begin()->second.due);
  overdue_timer_.async_wait([this](Code code) {
    if (!code) drop_overdue();
  });
}

std::unique_ptr<StoreConnection::Session> StoreServer::Impl::open_session(StoreConnection& connection,
                                                                          uint8_t first_byte) {
  if (first_byte == static_cast<uint8_t>(wire::kMagic[0])) return ranks_.open(connection);
  if (first_byte == torch_wire::kFirstByte && admits_torch(connection)) return torch_.open(connection);
  return nullptr;
}

bool StoreServer::Impl::admits_torch(StoreConnection& connection) {
  return serves_torch_ && admits_address(connection) && admits_user(connection);
}

bool StoreServer::Impl::admits_address(const StoreConnection& connection) {
  if (torch_from_this_machine_ && connection.is_from_this_machine()) return true;
  auto from = connection.peer();
  if (torch_addresses_.contains(from)) return true;
  if (refusals_told_.size() < kMaxRefusalsTold && refusals_told_.insert(from).second) {
    log::warning(
        "store on port {}: refused a torch client from {}, which is not an address of the job's hosts; if it is one of "
        "them, put that address into the hostfile",
        port_, from.to_string());
  }
  return false;
}

// Every local user can connect from an address of this machine, so the user is checked. For a socket that is not found
// here (on another host of the job, or behind the NAT of a container's network) the user is unknown: the address check
// must suffice.
bool StoreServer::Impl::admits_user(StoreConnection& connection) {
  using Location = ports::PeerOwner::Location;
  const auto [location, uid] = connection.peer_owner();
  if (location == Location::kElsewhere) return true;
  if (location == Location::kGone) return false;
  if (uid == 0 || uid == ::geteuid()) return true;
  if (users_told_.size() < kMaxRefusalsTold && users_told_.insert(uid).second) {
    log::warning("store on port {}: refused a torch client of user {} at {}: this job belongs to user {}", port_, uid,
                 connection.describe_peer(), ::geteuid());
  }
  return false;
}

void StoreServer::Impl::on_proven(StoreConnection& connection) {
  unproven_.erase(connection.id());
  proven_.emplace(connection.id(), &connection);
}

void StoreServer::Impl::on_ended(StoreConnection& connection) {
  proven_.erase(connection.id());
  unproven_.erase(connection.id());
  stop_when_all_ended();
}

StoreServer::StoreServer(UniqueFd listener, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(options))) {}
StoreServer::~StoreServer() = default;
uint16_t StoreServer::port() const {
  return impl_->port();
}
std::vector<int> StoreServer::joined_ranks() const {
  return impl_->board().joined_ranks();
}
uint64_t StoreServer::num_requests() const {
  return impl_->board().num_requests();
}
bool StoreServer::wait_until_all_left(Deadline deadline) const {
  return impl_->board().wait_until_all_left(deadline);
}

}  // namespace dslaunch::rendezvous
