// A server on a kernel-chosen port and clients of it, for tests in one process.
#pragma once
#include "base/bytes.hpp"
#include "rendezvous/store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/stream_socket.hpp"

namespace dslaunch::rendezvous {

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}
inline Deadline in_ms(int milliseconds) {
  return Deadline::after(std::chrono::milliseconds(milliseconds));
}

struct StoreWorld {
  explicit StoreWorld(int size, std::chrono::milliseconds handshake = std::chrono::milliseconds(5000)) {
    StoreServerOptions options;
    options.world_size = size;
    options.token = token;
    options.rank_hosts.assign(static_cast<size_t>(size), "hostX");
    options.handshake_timeout = handshake;
    server = std::make_unique<StoreServer>(listen_on(0, true), options);
  }

  LaunchEnv env(int rank, int size) const {
    LaunchEnv out;
    out.rank = rank;
    out.world_size = size;
    out.master_port = server->port();
    out.token = token;
    out.agent_store = true;
    out.host = "hostX";
    return out;
  }
  std::unique_ptr<Store> join(int rank, int size) const { return connect_store(env(rank, size), soon()); }

  std::vector<uint8_t> token = random_bytes(32);
  std::unique_ptr<StoreServer> server;
};

}  // namespace dslaunch::rendezvous
