#include "runtime/sharding/all_gather_object.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

TEST_CASE("every rank sees every rank's outcome, and an error without a text is no success",
          "[runtime][all_gather_object]") {
  const std::vector<Result<>> own{{}, Failure{"cannot"}, Failure{""}};
  auto group = std::make_shared<test::ThreadGroup>(3);
  std::vector<std::vector<Result<>>> seen(3);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < own.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(group, static_cast<int>(rank));
      seen[rank] = gather_results(communicator, at::kCPU, own[rank]);
    });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& results : seen) {
    REQUIRE(results.size() == 3);
    CHECK(results[0].ok());
    REQUIRE_FALSE((results[1].ok() || results[2].ok()));
    CHECK(results[1].error() == "cannot");
    CHECK(results[2].error().empty());
  }
}
