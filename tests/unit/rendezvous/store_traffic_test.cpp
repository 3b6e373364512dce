// What a start costs at the store: the same for a rank of 2 as for a rank of 512.
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <thread>

#include "unit/rendezvous/store_world.hpp"

using namespace dslaunch;
using namespace dslaunch::rendezvous;

namespace {

// Clients and server in one process take three descriptors a rank.
class ManyDescriptors {
 public:
  ManyDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit raised = before_;
    raised.rlim_cur = raised.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &raised);
  }
  ~ManyDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// What a worker does until its first step, and at its end: join, agree on a key for its communicator, publish or read
// NCCL's id under it, meet the others before and after, leave.
void start_and_end(const StoreWorld& world, int rank, int size) {
  auto deadline = Deadline::after(std::chrono::seconds(100));
  auto store = connect_store(world.env(rank, size), deadline);
  store->barrier("start", size, deadline);
  auto round = store->add("comm/world/made/" + std::to_string(rank), 1, deadline);
  std::string key = "comm/world/" + std::to_string(round) + "/nccl_id";
  if (rank == 0) {
    store->set(key, std::string(128, 'i'), deadline);
  } else {
    store->get(key, deadline);
  }
  store->barrier("end", size, deadline);
  store->leave();
}

double requests_per_rank(int size) {
  StoreWorld world(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&world, rank, size] { start_and_end(world, rank, size); });
  for (auto& rank : ranks) rank.join();
  CHECK(world.server->wait_until_all_left(Deadline::after(std::chrono::seconds(100))));  // nobody waits for an answer
  return static_cast<double>(world.server->num_requests()) / size;
}

}  // namespace

TEST_CASE("the number of requests per rank at start does not grow with the world", "[rendezvous][store_traffic]") {
  ManyDescriptors scope;
  // Handshake 2, barriers 2, add, set or get, leave.
  for (int size : {2, 8, 64, 512}) {
    CAPTURE(size);
    CHECK(requests_per_rank(size) == 7.0);
  }
}
