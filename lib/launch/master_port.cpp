#include "launch/master_port.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "ports/held_port.hpp"

namespace dslaunch::launch {

// Torch's store listens on all addresses, so for a program the port must be free on all of them. Other hosts may know
// this one under another address than it does itself.
static std::string address_to_bind(const JobDescription& job) {
  return job.kind == JobKind::kExec || job.num_nodes > 1 ? std::string() : job.master_addr;
}

static ports::HeldPort hold(const JobDescription& job) {
  auto held = ports::hold_port(address_to_bind(job), job.master_port);
  if (auto* busy = std::get_if<ports::Busy>(&held)) {
    throw UserError(ExitCode::kUnavailable,
                    fmt::format("--master_port: {}; choose another number, or leave the option out and a free port is "
                                "taken",
                                ports::describe(*busy)));
  }
  return std::move(std::get<ports::HeldPort>(held));
}

MasterPort::MasterPort(const JobDescription& job, UniqueFd listener) : world_size_(job.world_size) {
  ports::HeldPort held = listener.valid() ? ports::HeldPort{std::move(listener), job.master_port} : hold(job);
  number_ = held.port;
  if (job.kind == JobKind::kExec) {
    held_ = std::move(held.listener);
  } else {
    store_ = std::make_unique<rendezvous::StoreServer>(
        std::move(held.listener), rendezvous::StoreServerOptions{job.world_size, job.token, job.rank_hosts});
  }
}

void MasterPort::release_to_program() {
  held_.reset();
}

std::vector<int> MasterPort::ranks_not_joined() const {
  std::vector<int> missing;
  if (!store_) return missing;
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
