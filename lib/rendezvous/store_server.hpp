// The TCP store's server: one thread, one listening socket that was bound and held before any rank started. It tracks
// which ranks have joined and broadcasts the end of a rank's connection to all others. The same port serves torch's
// TCPStore clients where the options say so, in a separate key space; the first byte distinguishes the two protocols.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

namespace dslaunch::rendezvous {

// Torch's protocol has no proof, so a client is admitted by where it comes from.
struct TorchClients {
  std::vector<std::string> addresses;  // numeric, IPv4 or IPv6
  bool from_this_machine = true;       // loopback, and this machine's own addresses
  // Limit on what all torch clients together have partly sent, wait for or have not read; beyond it the largest is
  // dropped.
  size_t max_held_bytes = size_t{256} << 20;
};

struct StoreServerOptions {
  int world_size = 1;
  std::vector<uint8_t> token;           // clients prove it; empty: accepted without proof (a job of another launcher)
  std::vector<std::string> rank_hosts;  // for messages; may be empty
  std::chrono::milliseconds handshake_timeout{5000};  // a connection without proof by then is dropped
  std::optional<TorchClients> torch_clients;          // unset: torch's clients are rejected
};

class StoreServer {
 public:
  // `listener`: a bound and listening TCP socket (see ports::hold_port); the server takes ownership.
  StoreServer(UniqueFd listener, StoreServerOptions options);
  ~StoreServer();  // closes all connections and joins the thread
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const;
  // Ranks that have proven the token so far, ascending. Any thread.
  std::vector<int> joined_ranks() const;
  // True when every rank that joined has left or is lost; false at the deadline.
  bool wait_until_all_left(Deadline deadline) const;
  // Messages from our ranks so far: two handshake blocks per rank, then one for each operation. Any thread.
  uint64_t num_requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dslaunch::rendezvous
