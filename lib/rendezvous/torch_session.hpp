// The store's server for torch's clients: one key space, a session for each connection. On the server's io thread.
#pragma once
#include <memory>
#include <unordered_map>

#include "rendezvous/store_connection.hpp"
#include "rendezvous/torch_key_space.hpp"

namespace dslaunch::rendezvous {

class TorchSessions {
 public:
  TorchSessions();

  std::unique_ptr<StoreConnection::Session> open(StoreConnection& connection);
  void close_all(const std::string& reason);

 private:
  class Session;

  TorchKeySpace space_;
  std::unordered_map<TorchKeySpace::Client, StoreConnection*> clients_;  // validated and not ended
};

}  // namespace dslaunch::rendezvous
