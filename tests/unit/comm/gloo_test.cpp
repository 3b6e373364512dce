#include <dlfcn.h>

#include "base/error.hpp"
#include "comm/modules.hpp"
#include "unit/comm/communicator_contract.hpp"

using namespace dslaunch;
using namespace dslaunch::test;
using Catch::Contains;

namespace {

comm::CommunicatorOptions options_for(const RankContext& context) {
  comm::CommunicatorOptions options;
  options.rank = context.rank;
  options.size = context.size;
  options.timeout = std::chrono::seconds(30);
  return options;
}

uint32_t bits_of(float value) {
  uint32_t out;
  std::memcpy(&out, &value, 4);
  return out;
}

// Values whose sum depends on the order of additions.
float rough(int rank, size_t i) {
  return std::sin(static_cast<float>(i) * 0.37f + static_cast<float>(rank)) *
         std::pow(10.0f, static_cast<float>(i % 7));
}

}  // namespace

TEST_CASE("Gloo keeps the contract among 2, 3 and 4 processes", "[comm][gloo][multiproc]") {
  for (int size : {2, 3, 4}) {
    check_all_well(run_ranks(size, [](const RankContext& context) {
      auto communicator = comm::make_communicator(options_for(context), context.store);
      HostMemory memory;
      return check_contract(*communicator, memory);
    }));
  }
}

TEST_CASE("sums are those in the order of ranks, bit by bit, whichever way they were made", "[comm][gloo][multiproc]") {
  for (int size : {2, 3, 4}) {
    check_all_well(run_ranks(size, [](const RankContext& context) -> std::string {
      auto communicator = comm::make_communicator(options_for(context), context.store);
      for (size_t count : {size_t{12}, size_t{1200012}}) {
        std::vector<float> mine(count), expected(count), gathered(count);
        for (size_t i = 0; i < count; ++i) {
          mine[i] = rough(context.rank, i);
          volatile float sum = rough(0, i);
          for (int rank = 1; rank < context.size; ++rank) sum = sum + rough(rank, i);
          expected[i] = sum;
        }
        size_t share = count / static_cast<size_t>(context.size);
        std::vector<float> slice(share);
        communicator->reduce_scatter(comm::Buffer{mine.data(), count, DType::kFloat32},
                                     {slice.data(), share, DType::kFloat32}, ReduceOp::kSum);
        communicator->all_gather(comm::Buffer{slice.data(), share, DType::kFloat32},
                                 {gathered.data(), count, DType::kFloat32});
        communicator->all_reduce({mine.data(), count, DType::kFloat32}, ReduceOp::kSum);
        for (size_t i = 0; i < count; ++i) {
          if (bits_of(mine[i]) != bits_of(expected[i])) return fmt::format("all_reduce differs at {}", i);
          if (bits_of(gathered[i]) != bits_of(expected[i])) return fmt::format("reduce_scatter differs at {}", i);
        }
      }
      return "";
    }));
  }
}

TEST_CASE("two groups over the same ranks do not mix, and a group can be made again", "[comm][gloo][multiproc]") {
  check_all_well(run_ranks(3, [](const RankContext& context) -> std::string {
    auto options = options_for(context);
    auto first = comm::make_communicator(options, context.store);
    options.name = "other";
    options.rank = context.size - 1 - context.rank;
    auto second = comm::make_communicator(options, context.store);
    int64_t one = context.rank, two = second->rank();
    first->broadcast({&one, 1, DType::kInt64}, 0);
    second->broadcast({&two, 1, DType::kInt64}, 0);
    first.reset();
    auto again = comm::make_communicator(options_for(context), context.store);
    int64_t three = 1;
    again->all_reduce({&three, 1, DType::kInt64}, ReduceOp::kSum);
    return one == 0 && two == 0 && three == 3 ? "" : "groups mixed";
  }));
}

TEST_CASE("the death of a peer in the middle of a collective is an error on every survivor in under a second",
          "[comm][gloo][multiproc]") {
  for (int size : {2, 4}) {
    for (int victim : {0, size - 1}) {
      check_death(run_ranks(
                      size,
                      [](const RankContext& context) {
                        auto communicator = comm::make_communicator(options_for(context), context.store);
                        HostMemory memory;
                        return lose_a_peer(context, *communicator, memory);
                      },
                      victim),
                  victim);
    }
  }
}

TEST_CASE("a rank that dies without ever coming to the collective is noticed as fast", "[comm][gloo][multiproc]") {
  for (const Awaited awaited : {Awaited::kAllReduce, Awaited::kAllToAll, Awaited::kExchange}) {
    check_death(run_ranks(
                    3,
                    [&](const RankContext& context) {
                      auto communicator = comm::make_communicator(options_for(context), context.store);
                      HostMemory memory;
                      return wait_for_the_dead(context, 1, *communicator, memory, awaited);
                    },
                    1),
                1);
  }
}

TEST_CASE("a rank that dies while the group is being made does not hold the others up", "[comm][gloo][multiproc]") {
  auto group = run_ranks(
      3,
      [](const RankContext& context) -> std::string {
        if (context.rank == 2) {
          context.announce();
          for (;;) ::pause();
        }
        try {
          comm::make_communicator(options_for(context), context.store);
        } catch (const PeerError& error) {
          return fmt::format("{:.6f} {} | {}", now_seconds(), error.what(), error.what());
        }
        return "the group was made";
      },
      2);
  check_death(group, 2);
}

TEST_CASE("abort() by another thread ends what is pending", "[comm][gloo][multiproc]") {
  check_all_well(run_ranks(2, [](const RankContext& context) {
    auto communicator = comm::make_communicator(options_for(context), context.store);
    HostMemory memory;
    return check_abort(*communicator, memory);
  }));
}

TEST_CASE("a wait for a point ends when it is reached or when something goes wrong", "[comm][gloo][multiproc]") {
  check_all_well(run_ranks(2, [](const RankContext& context) {
    return check_wait_until(*comm::make_communicator(options_for(context), context.store));
  }));
}

TEST_CASE("a rank that does not come to a collective is named when time is up", "[comm][gloo][multiproc]") {
  auto group = run_ranks(3, [](const RankContext& context) -> std::string {
    auto options = options_for(context);
    auto patient = comm::make_communicator(options, context.store);
    options.name = "hasty";
    options.timeout = std::chrono::seconds(2);
    auto hasty = comm::make_communicator(options, context.store);
    patient->barrier();
    std::string text;
    if (context.rank != 1) {
      try {
        hasty->barrier();
      } catch (const TimeoutError& error) {
        text = error.what();
      } catch (const PeerError&) {
        // The other one timed out first and took its connections along.
        text = "member 1 sent nothing in group 'hasty' within 2.0 s";
      }
    }
    context.store.barrier("end", context.size, Deadline::after(std::chrono::seconds(30)));
    return text;
  });
  for (int rank : {0, 2}) {
    CHECK_THAT(group.reports[static_cast<size_t>(rank)].text,
               Contains("member 1") && Contains("'hasty'") && Contains("2.0 s"));
  }
  CHECK(group.reports[1].text.empty());
}

TEST_CASE("a missing module says which file, why, and what to install", "[comm][gloo][multiproc]") {
  auto group = run_ranks(2, [](const RankContext& context) -> std::string {
    ::setenv("DSLAUNCH_MODULE_DIR", "/nonexistent", 1);
    try {
      comm::make_communicator(options_for(context), context.store);
    } catch (const UserError& error) {
      return std::to_string(to_int(error.code())) + " " + error.what();
    }
    return "";
  });
  CHECK_THAT(group.reports[0].text,
             Contains("69") && Contains("/nonexistent/libdslaunch_gloo.so") && Contains("libgloo0"));
}

TEST_CASE("Debian's gloo answers beside LibTorch, which exports the same symbols", "[comm][gloo][multiproc]") {
  check_all_well(run_ranks(2, [](const RankContext& context) -> std::string {
    if (!::dlopen(DSL_TORCH_LIBRARY, RTLD_NOW | RTLD_GLOBAL)) return ::dlerror();
    if (!::dlsym(RTLD_DEFAULT, "_ZN4gloo7ContextC1Eiii")) return "LibTorch exports no gloo any more: drop deep binding";
    auto which = comm::gloo_module().function<const char* (*)()>("dslaunch_gloo_library");
    std::string path = which();
    if (path.find("libgloo.so") == std::string::npos) return "gloo comes from " + path;
    auto communicator = comm::make_communicator(options_for(context), context.store);
    HostMemory memory;
    return check_contract(*communicator, memory);
  }));
}

TEST_CASE("libgloo waits for its connections through our epoll_wait", "[comm][gloo][multiproc]") {
  check_all_well(run_ranks(2, [](const RankContext& context) -> std::string {
    auto communicator = comm::make_communicator(options_for(context), context.store);
    HostMemory memory;
    std::string failure = check_contract(*communicator, memory);
    auto asked = comm::gloo_module().function<bool (*)()>("dslaunch_gloo_backoff_is_active");
    return asked() ? failure : "libgloo asks libc's";
  }));
}
