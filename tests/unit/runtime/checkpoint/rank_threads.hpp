// A job's ranks as threads of one process, saving and restoring test::example_part() together.
#pragma once
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "runtime/checkpoint/checkpoint_restore.hpp"
#include "runtime/checkpoint/checkpoint_writer.hpp"
#include "saved_example.hpp"
#include "support/memory_store.hpp"
#include "support/thread_communicator.hpp"

namespace dslaunch::test {

// Where the ranks are and what they see; the first rank of a node leads it.
struct Hosts {
  std::vector<int> node_of_rank;
  std::vector<std::string> dir_of_node;  // equal ones are one folder

  int world_size() const { return static_cast<int>(node_of_rank.size()); }
  int leader_of_node(int node) const {
    return static_cast<int>(std::find(node_of_rank.begin(), node_of_rank.end(), node) - node_of_rank.begin());
  }
  const std::string& dir_of_rank(int rank) const {
    return dir_of_node[static_cast<size_t>(node_of_rank[static_cast<size_t>(rank)])];
  }
  runtime::Placement placement(int rank) const {
    runtime::Placement out;
    out.rank = rank;
    out.world_size = world_size();
    out.node = node_of_rank[static_cast<size_t>(rank)];
    out.local_rank = rank - leader_of_node(out.node);
    out.num_nodes = static_cast<int>(dir_of_node.size());
    out.host = "node" + std::to_string(out.node + 1);
    return out;
  }
  // The lowest leader that sees the folder.
  runtime::CheckpointStorageTopology share(int rank) const {
    runtime::CheckpointStorageTopology out;
    out.leaders.clear();
    for (size_t node = 0; node < dir_of_node.size(); ++node) {
      const auto first = std::find(dir_of_node.begin(), dir_of_node.end(), dir_of_node[node]) - dir_of_node.begin();
      const int leader = leader_of_node(static_cast<int>(first));
      if (static_cast<int>(node) == node_of_rank[static_cast<size_t>(rank)]) out.leader = leader;
      if (first == static_cast<std::ptrdiff_t>(node)) out.leaders.push_back(leader);
    }
    return out;
  }
};

inline Hosts one_host(const std::string& dir, int world_size) {
  return {std::vector<int>(static_cast<size_t>(world_size), 0), {dir}};
}

struct RankOutcome {
  int code = 0;
  std::string message;
};

inline void on_all_ranks(int world_size, const std::function<void(int)>& work) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.emplace_back([&, rank] { work(rank); });
  for (auto& rank : ranks) rank.join();
}

inline RankOutcome outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {to_int(error.code()), error.what()};
  }
}

inline runtime::CheckpointWriterOptions writer_options(const Hosts& hosts, int rank, int64_t keep_last) {
  runtime::CheckpointWriterOptions options;
  options.dir = hosts.dir_of_rank(rank);
  options.rank = rank;
  options.world_size = hosts.world_size();
  options.keep_last = keep_last;
  options.timeout = std::chrono::seconds(30);
  options.share = hosts.share(rank);
  options.host = hosts.placement(rank).host;
  return options;
}

inline std::vector<RankOutcome> save_on(const Hosts& hosts, int64_t step, int64_t keep_last = 9,
                                        const std::string& skeleton = "") {
  MemoryStore store;
  std::vector<RankOutcome> outcomes(static_cast<size_t>(hosts.world_size()));
  on_all_ranks(hosts.world_size(), [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = outcome_of([&] {
      const auto options = writer_options(hosts, rank, keep_last);
      runtime::CheckpointWriter writer(options, store);
      auto part = example_part(step, rank, hosts.world_size());
      if (rank == options.share.leader) part.skeleton = skeleton;
      writer.save(part);
      writer.finish();
    });
  });
  return outcomes;
}

// What a rank got: its share of "w", checked to be of one step, and its random state.
struct RankRestored {
  RankOutcome outcome;
  bool found = false;
  int64_t step = -1;
  std::string path, rng;
  int attempts = 0;
};

inline void require_step(const at::Tensor& values, int64_t step, int64_t begin) {
  if (!values.equal(example_values(step, begin, begin + values.numel()))) {
    throw std::logic_error("values of another step than " + std::to_string(step));
  }
}

inline std::vector<RankRestored> restore_on(const Hosts& hosts, const std::string& from = "auto") {
  MemoryStore store;
  auto group = std::make_shared<ThreadGroup>(hosts.world_size());
  std::vector<RankRestored> out(static_cast<size_t>(hosts.world_size()));
  on_all_ranks(hosts.world_size(), [&](int rank) {
    auto& own = out[static_cast<size_t>(rank)];
    ThreadCommunicator world(group, rank);
    const int64_t begin = 10 * rank / hosts.world_size(), end = 10 * (rank + 1) / hosts.world_size();
    at::Tensor master, moment, tied, count;
    own.outcome = outcome_of([&] {
      runtime::RestoreOptions options{hosts.dir_of_rank(rank), from == "auto" ? from : hosts.dir_of_rank(rank) + from,
                                      hosts.placement(rank)};
      const auto restored = runtime::restore_checkpoint(options, store, world, [&](runtime::RestoreSource& source) {
        own.attempts += 1;
        master = at::empty({end - begin}), moment = at::empty({end - begin}), tied = at::empty({3});
        count = at::empty({}, at::kLong);
        source.read_into("w", "master", begin, master);
        source.read_into("w", "exp_avg", begin, moment);
        source.read_into("inner.tied", "master", 0, tied);
        source.read_into("count", "buffer", 0, count);
        own.rng = source.rng_state(rank, comm::Mesh{.data = hosts.world_size()}).value_or("");
      });
      if (!restored) return;
      own.found = true;
      own.step = restored->metadata.step;
      own.path = restored->path;
      const int64_t values_step = count.item<int64_t>();
      require_step(master, values_step, begin);
      require_step(moment, values_step, begin);
      require_step(tied, values_step, 0);
    });
  });
  return out;
}

}  // namespace dslaunch::test
