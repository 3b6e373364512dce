// The store's server for the job's ranks, in our own protocol: handshake, proof of the token, frames. Runs on the
// server's io thread; publishes the connected ranks in the RankRegistry, which any thread may read.
#pragma once
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/deadline.hpp"
#include "rendezvous/store_connection.hpp"
#include "rendezvous/store_state.hpp"

namespace dslaunch::rendezvous {

// Which ranks have joined and how many requests they sent, for other threads.
class RankRegistry {
 public:
  void join(int rank);
  void leave();  // a connected rank has left or is lost
  void count_request() { ++num_requests_; }
  uint64_t num_requests() const { return num_requests_; }
  std::vector<int> joined_ranks() const;
  bool wait_until_all_left(Deadline deadline) const;

 private:
  std::atomic<uint64_t> num_requests_ = 0;
  mutable std::mutex mutex_;  // guards the members below
  mutable std::condition_variable changed_;
  std::set<int> joined_;
  size_t num_connected_ = 0;
};

class RankSessions {
 public:
  RankSessions(boost::asio::io_context& io, RankRegistry& registry, int world_size, std::vector<uint8_t> token,
               std::vector<std::string> rank_hosts);

  std::unique_ptr<StoreConnection::Session> open(StoreConnection& connection);
  // Tells the ranks that the end of their connections is not a loss, and closes the connections.
  void announce_shutdown();

 private:
  class Session;

  void admit(Session& session);
  void lose(int rank, const std::string& reason);
  void leave(int rank);
  void wait_for_key(Session& session, const wire::Frame& frame);
  void wait_at_barrier(Session& session, const wire::Frame& frame);
  StoreState::Answered later(Session& session, uint32_t request, const std::shared_ptr<StoreState::Ticket>& ticket);
  void expire_after(uint64_t timeout_ms, StoreState::Ticket ticket);

  boost::asio::io_context& io_;
  RankRegistry& registry_;
  const uint32_t world_size_;
  const std::vector<uint8_t> token_;
  StoreState state_;
  std::map<int, Session*> by_rank_;
  std::map<StoreState::Ticket, std::unique_ptr<boost::asio::steady_timer>> timers_;
  size_t announced_losses_ = 0;
  bool stopping_ = false;
};

}  // namespace dslaunch::rendezvous
