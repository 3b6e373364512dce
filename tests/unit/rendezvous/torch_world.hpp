// A server that admits torch's clients, and such a client byte by byte.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "unit/rendezvous/store_world.hpp"
#include "unit/rendezvous/torch_requests.hpp"

namespace dslaunch::rendezvous {

struct TorchWorld {
  explicit TorchWorld(TorchClients clients = {},
                      std::chrono::milliseconds handshake = std::chrono::milliseconds(5000)) {
    StoreServerOptions options;
    options.world_size = 2;
    options.token = token;
    options.handshake_timeout = handshake;
    options.torch_clients = std::move(clients);
    server = std::make_unique<StoreServer>(listen_on(0, false), options);
  }

  std::unique_ptr<Store> join(int rank) const {
    LaunchEnv env;
    env.rank = rank;
    env.world_size = 2;
    env.master_port = server->port();
    env.token = token;
    env.agent_store = true;
    return connect_store(env, soon());
  }

  std::vector<uint8_t> token = random_bytes(32);
  std::unique_ptr<StoreServer> server;
};

class Client {
 public:
  explicit Client(const StoreServer& server, const char* from = nullptr) {
    if (!from) {
      fd_ = *connect_once("127.0.0.1", server.port(), soon());
      return;
    }
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &address.sin_addr);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(server.port());
    REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    fd_ = std::move(fd);
  }

  void send(const std::string& bytes) { send_all(fd_.get(), bytes, soon()); }
  // As a client that exits; what was sent before arrives.
  void end() { fd_.reset(); }
  std::string receive(size_t count) {
    std::string bytes;
    REQUIRE(receive_exactly(fd_.get(), bytes, count, soon()) == IoOutcome::kDone);
    return bytes;
  }
  // Sends and checks the whole answer.
  void expect(const std::string& request, const std::string& answer) {
    send(request);
    CHECK(receive(answer.size()) == answer);
  }
  // Shows that everything sent before has been taken, and that nothing else was answered.
  void expect_in_step() { expect(torch_bytes::ping(77), torch_bytes::number(77, 4)); }
  bool is_dropped() {
    std::string byte;
    return receive_exactly(fd_.get(), byte, 1, soon()) == IoOutcome::kClosed;
  }
  bool can_receive(size_t count) {
    std::string bytes;
    return receive_exactly(fd_.get(), bytes, count, soon()) == IoOutcome::kDone;
  }

 private:
  UniqueFd fd_;
};

inline Client validated(const StoreServer& server) {
  Client client(server);
  client.send(torch_bytes::validate());
  client.expect_in_step();
  return client;
}

}  // namespace dslaunch::rendezvous
