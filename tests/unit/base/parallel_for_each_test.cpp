#include "base/parallel_for_each.hpp"

#include <catch2/catch.hpp>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "support/refused_threads.hpp"

using namespace dslaunch;

TEST_CASE("all of the work is done when it returns", "[base][parallel_for_each]") {
  std::vector<size_t> done(5);
  parallel_for_each(done.size(), [&](size_t i) { done[i] = i + 1; });
  CHECK(done == std::vector<size_t>{1, 2, 3, 4, 5});
}

TEST_CASE("an exception of one thread reaches the caller after all have ended", "[base][parallel_for_each]") {
  std::vector<int> done(4);
  auto work = [&](size_t i) {
    done[i] = 1;
    if (i % 2 == 1) throw std::runtime_error(std::to_string(i));
  };
  CHECK_THROWS_WITH(parallel_for_each(done.size(), work), "1");
  CHECK(done == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("a thread that the system refuses is told, and those before it are waited for", "[base][parallel_for_each]") {
  std::vector<int> done(4);
  {
    RefusedThreads after(2);
    CHECK_THROWS_AS(parallel_for_each(done.size(), [&](size_t i) { done[i] = 1; }), std::system_error);
  }
  CHECK(done == std::vector<int>{1, 1, 0, 0});
}
