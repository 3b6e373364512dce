// The store's server for torch's clients: one key space, one session per connection. Runs on the server's io thread.
//
// None of these clients proves anything, so the memory that they can use is limited for all of them together: partly
// received requests, pending waits and unread answers. Beyond the limit the client that holds most is dropped.
#pragma once
#include <memory>
#include <unordered_map>

#include "rendezvous/store_connection.hpp"
#include "rendezvous/torch_key_space.hpp"

namespace dslaunch::rendezvous {

class TorchSessions {
 public:
  explicit TorchSessions(size_t max_held_bytes);

  std::unique_ptr<StoreConnection::Session> open(StoreConnection& connection);
  void close_all(const std::string& reason);

 private:
  class Session;

  size_t total_held_bytes() const { return held_bytes_ + space_.outlived_bytes(); }
  void keep_within_limit();
  void close_largest();

  const size_t max_held_bytes_;
  TorchKeySpace space_;
  std::unordered_map<TorchKeySpace::Client, Session*> clients_;  // validated and not ended
  size_t held_bytes_ = 0;                                        // sum over the clients, each as last counted
  std::weak_ptr<StoreConnection> being_dropped_;
};

}  // namespace dslaunch::rendezvous
