// Selects a rank's store: the agent's, its own (rank 0 of a job that another launcher started), rank 0's, or a map in
// this process for a world size of one.
#include <charconv>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/in_process_store.hpp"
#include "rendezvous/store_server.hpp"
#include "rendezvous/stream_socket.hpp"
#include "rendezvous/tcp_store.hpp"
#include "rendezvous/torch_store.hpp"

namespace dslaunch::rendezvous {

namespace {

std::unique_ptr<Store> join(const StoreAddress& address, const LaunchEnv& env, std::unique_ptr<StoreServer> server,
                            Deadline deadline) {
  auto fd = join_store(address, env, deadline);
  return std::make_unique<TcpStore>(std::move(fd), address, std::move(server));
}

std::unique_ptr<Store> serve(const LaunchEnv& env, uint16_t port, StoreAddress& address, Deadline deadline) {
  auto listener = listen_on(port, is_loopback_address(env.master_addr));
  StoreServerOptions options;
  options.world_size = env.world_size;
  options.token = address.token;
  options.rank_hosts = env.rank_hosts;
  auto server = std::make_unique<StoreServer>(std::move(listener), options);
  address.port = server->port();
  StoreAddress own = address;
  own.host = "127.0.0.1";
  return join(own, env, std::move(server), deadline);
}

// torchrun's own store holds MASTER_PORT: rank 0 serves on a port that the kernel chose and leaves a note in torchrun's
// store with the port and a fresh token, which only ranks of this run can read.
std::unique_ptr<Store> connect_beside_torchrun(const LaunchEnv& env, Deadline deadline) {
  std::string key = "dslaunch/store/" + env.torch_run;
  StoreAddress address{env.master_addr, 0, {}, 0};
  if (env.rank == 0) {
    address.token = random_bytes(32);
    auto store = serve(env, 0, address, deadline);
    set_in_torch_store(env.master_addr, env.master_port, key, fmt::format("{} {}", address.port, to_hex(address.token)),
                       deadline);
    return store;
  }
  const std::string note = wait_in_torch_store(env.master_addr, env.master_port, key, deadline);
  const char* const end = note.data() + note.size();
  const auto [space, error] = std::from_chars(note.data(), end, address.port);
  const bool parted = error == std::errc() && space != end && *space == ' ';
  auto token = parted ? from_hex({space + 1, end}) : std::nullopt;
  DSL_CHECK(token, "the value in torchrun's store is not 'PORT TOKEN'");
  address.token = *token;
  return join(address, env, nullptr, deadline);
}

}  // namespace

std::unique_ptr<Store> connect_store(const LaunchEnv& env, Deadline deadline) {
  if (env.world_size == 1 && !env.agent_store) return make_in_process_store();
  if (env.torch_agent_store) return connect_beside_torchrun(env, deadline);
  StoreAddress address{env.master_addr, env.master_port, env.token, env.agent_store ? -1 : 0};
  if (env.rank == 0 && !env.agent_store) return serve(env, env.master_port, address, deadline);
  return join(address, env, nullptr, deadline);
}

}  // namespace dslaunch::rendezvous
