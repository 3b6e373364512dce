// The contract over NCCL: a program of its own, since it needs two GPUs. One process a GPU.
#include "unit/comm/device_ranks.hpp"

using namespace dslaunch;
using namespace dslaunch::test;

TEST_CASE("NCCL keeps the contract", "[comm][nccl][gpu2]") {
  for (int size : {2, 4}) {
    if (!enough_gpus(size)) continue;
    check_all_well(run_ranks(size, [](const RankContext& context) {
      auto communicator = open_on_device(context);
      DeviceMemory memory;
      return check_contract(*communicator, memory);
    }));
  }
}

TEST_CASE("a group of one on a device keeps the contract", "[comm][nccl][gpu]") {
  if (!enough_gpus(1)) return;
  check_all_well(run_ranks(1, [](const RankContext& context) {
    auto communicator = open_on_device(context);
    DeviceMemory memory;
    return check_contract(*communicator, memory);
  }));
}

TEST_CASE("over NCCL the death of a peer in a collective is an error on every survivor in under a second",
          "[comm][nccl][gpu2]") {
  for (int size : {2, 4}) {
    if (!enough_gpus(size)) continue;
    check_death(run_ranks(
                    size,
                    [](const RankContext& context) {
                      auto communicator = open_on_device(context);
                      DeviceMemory memory;
                      return lose_a_peer(context, *communicator, memory);
                    },
                    1),
                1);
  }
}

TEST_CASE("over NCCL a rank that dies without coming to the collective is noticed as fast", "[comm][nccl][gpu2]") {
  if (!enough_gpus(2)) return;
  for (const Awaited awaited : {Awaited::kAllReduce, Awaited::kAllToAll, Awaited::kExchange}) {
    check_death(run_ranks(
                    2,
                    [&](const RankContext& context) {
                      auto communicator = open_on_device(context);
                      DeviceMemory memory;
                      return wait_for_the_dead(context, 1, *communicator, memory, awaited);
                    },
                    1),
                1);
  }
}

TEST_CASE("over NCCL a rank that dies during set-up does not hold the others up", "[comm][nccl][gpu2]") {
  if (!enough_gpus(2)) return;
  check_death(run_ranks(
                  2,
                  [](const RankContext& context) -> std::string {
                    if (context.rank == 1) {
                      // Rank 0 has published its id and waits inside NCCL.
                      context.store.get("comm/world/1/nccl_id", Deadline::after(std::chrono::seconds(30)));
                      context.announce();
                      for (;;) ::pause();
                    }
                    try {
                      open_on_device(context);
                    } catch (const PeerError& error) {
                      return fmt::format("{:.6f} {} | {}", now_seconds(), error.what(), error.what());
                    }
                    return "the group was made";
                  },
                  1),
              1);
}

TEST_CASE("over NCCL a wait for a point ends when it is reached or when something goes wrong", "[comm][nccl][gpu2]") {
  if (!enough_gpus(2)) return;
  check_all_well(run_ranks(2, [](const RankContext& context) { return check_wait_until(*open_on_device(context)); }));
}

TEST_CASE("over NCCL a collective that does not end is noticed while the host is stuck behind it",
          "[comm][nccl][gpu2]") {
  if (!enough_gpus(2)) return;
  check_all_well(run_ranks(2, [](const RankContext& context) -> std::string {
    const auto limit = Deadline::after(std::chrono::seconds(40));
    auto communicator = open_on_device(context, "world", std::chrono::seconds(3));
    DeviceMemory memory;
    void* data = memory.allocate(4096);
    communicator->all_reduce({data, 1024, DType::kFloat32}, ReduceOp::kSum);  // NCCL connects here
    communicator->wait_for_completion();
    if (context.rank == 1) {  // alive, and never comes again
      context.store.get("the other one has ended", limit);
      return "";
    }
    communicator->all_reduce({data, 1024, DType::kFloat32}, ReduceOp::kSum);
    // More than any queue takes: the launch blocks until the collective is gone.
    for (int i = 0; i < 20000; ++i) ::cudaMemsetAsync(data, 0, 4096, nullptr);
    std::string result = "no error";
    try {
      communicator->all_reduce({data, 1024, DType::kFloat32}, ReduceOp::kSum);
      communicator->wait_for_completion();
    } catch (const TimeoutError& error) {
      const bool is_named = std::string(error.what()).find("all_reduce") != std::string::npos;
      result = is_named ? "" : error.what();
    }
    context.store.set("the other one has ended", "", limit);
    return result;
  }));
}

TEST_CASE("over NCCL abort() by another thread ends what is pending", "[comm][nccl][gpu2]") {
  if (!enough_gpus(2)) return;
  check_all_well(run_ranks(2, [](const RankContext& context) {
    auto communicator = open_on_device(context);
    DeviceMemory memory;
    return check_abort(*communicator, memory);
  }));
}
