#include "runtime/engine/run/store_barrier.hpp"

#include <catch2/catch.hpp>
#include <thread>

#include "support/expect_error.hpp"
#include "support/memory_store.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::run;
using namespace std::chrono_literals;

namespace {

// Comes to a barrier only when somebody has waited there in vain.
class LateStore : public test::MemoryStore {
 public:
  void barrier(const std::string& name, int count, Deadline deadline) override {
    try {
      MemoryStore::barrier(name, count, deadline);
    } catch (const TimeoutError&) {
      if (!other_.joinable())
        other_ = std::thread([=, this] { MemoryStore::barrier(name, count, Deadline::after(1min)); });
      throw;
    }
  }
  ~LateStore() override {
    if (other_.joinable()) other_.join();
  }

 private:
  std::thread other_;
};

}  // namespace

TEST_CASE("who comes to an event late is waited for", "[runtime][engine][store_barrier]") {
  LateStore store;
  store_barrier(store, 2, 7, "forward of unit 'a'", 1min, nullptr);
}

TEST_CASE("who is alone at an event says so", "[runtime][engine][store_barrier]") {
  test::MemoryStore store;
  test::expect_error(
      ExitCode::kBadInput,
      {"forward of unit 'a' at step 7 (which the first step did not have)", "timed out waiting", "stage 0 or 1"},
      [&] { store_barrier(store, 2, 7, "forward of unit 'a'", 12ms, nullptr); });
}
