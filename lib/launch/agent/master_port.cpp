#include "launch/agent/master_port.hpp"

#include <netdb.h>

#include <algorithm>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/host_addresses.hpp"
#include "base/log.hpp"
#include "launch/doctor/port_reclaim.hpp"

namespace dslaunch::launch {

// A program may reach the port by any name of this host, as it would reach PyTorch's own store; and other hosts may
// know this host by another address than it does itself.
static std::string address_to_bind(const JobDescription& job) {
  return job.kind == JobKind::kExec || job.num_nodes > 1 ? std::string() : job.master_addr;
}

static ports::HeldPort hold(const JobDescription& job) {
  auto held = hold_or_reclaim_port(address_to_bind(job), job.master_port,
                                   [](const std::string& what) { log::warning("{}", what); });
  if (auto* busy = std::get_if<ports::Busy>(&held)) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("--master_port: {}; choose another number, or omit the option to use a free "
                                "port",
                                ports::describe(*busy)));
  }
  return std::move(std::get<ports::HeldPort>(held));
}

// The numeric addresses of a host, or `host` itself if numeric; none when its name cannot be resolved here.
static std::vector<std::string> addresses_of(const std::string& host) {
  const auto found = look_up_host(host.c_str(), 0);
  if (!found.ok()) {
    log::warning("cannot resolve host '{}' on this host: {}; torch clients from it will be refused", host,
                 found.error());
    return {};
  }
  std::vector<std::string> out;
  for (const addrinfo* at = found->get(); at; at = at->ai_next) {
    if (auto text = numeric_address(at->ai_addr, at->ai_addrlen); !text.empty()) out.push_back(std::move(text));
  }
  return out;
}

// The addresses that PyTorch clients may have: this machine's and the other nodes', as far as their names resolve here.
static rendezvous::TorchClients torch_clients_of(const JobDescription& job) {
  rendezvous::TorchClients clients{{}, true};
  for (const auto& node : job.node_addresses) {
    for (auto& address : addresses_of(node)) clients.addresses.push_back(std::move(address));
  }
  return clients;
}

MasterPort::MasterPort(const JobDescription& job, UniqueFd listener, bool serve_torch_store)
    : world_size_(job.world_size), ranks_join_(job.kind == JobKind::kRun) {
  ports::HeldPort held = listener.valid() ? ports::HeldPort{std::move(listener), job.master_port} : hold(job);
  number_ = held.port;
  rendezvous::StoreServerOptions options;
  options.world_size = job.world_size;
  options.token = job.token;
  options.rank_hosts = job.rank_hosts;
  if (serve_torch_store) options.torch_clients = torch_clients_of(job);
  store_ = std::make_unique<rendezvous::StoreServer>(std::move(held.listener), std::move(options));
}

std::vector<int> MasterPort::ranks_not_joined() const {
  std::vector<int> missing;
  if (!ranks_join_) return missing;
  auto joined = store_->joined_ranks();
  for (int rank = 0; rank < world_size_; ++rank) {
    if (!std::binary_search(joined.begin(), joined.end(), rank)) missing.push_back(rank);
  }
  return missing;
}

bool MasterPort::needed(const JobDescription& job) {
  if (job.node_rank != 0) return false;
  return job.kind == JobKind::kExec || job.world_size > 1 || job.master_port != 0;
}

}  // namespace dslaunch::launch
