#include "runtime/checkpoint/shared_folder.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "memory_store.hpp"
#include "support/temporary_folder.hpp"

using namespace dslaunch;

namespace {

// What each rank was told; empty: nothing.
std::vector<std::string> ask(const std::vector<std::string>& folders) {
  test::MemoryStore store;
  std::vector<std::string> told(folders.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < folders.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        runtime::require_shared_folder(folders[rank], static_cast<int>(rank), static_cast<int>(folders.size()), store,
                                       Deadline::after(std::chrono::seconds(60)));
      } catch (const Error& error) {
        told[rank] = error.code() == ExitCode::kCannotCreate ? error.what() : "another code";
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  return told;
}

}  // namespace

TEST_CASE("a folder that all ranks see is made and left empty", "[runtime][checkpoint][shared_folder]") {
  test::TemporaryFolder folder;
  std::string dir = folder.file("new");
  CHECK(ask({dir, dir, dir}) == std::vector<std::string>(3));
  CHECK(std::filesystem::is_empty(dir));
}

TEST_CASE("a rank that sees another folder is named to all", "[runtime][checkpoint][shared_folder]") {
  test::TemporaryFolder folder;
  std::string dir = folder.file("a");
  auto told = ask({dir, dir, folder.file("b")});
  for (const auto& text : told) CHECK_THAT(text, Catch::Contains("rank 2 cannot see") && Catch::Contains(dir));
  CHECK(std::filesystem::is_empty(dir));
}

TEST_CASE("a folder that rank 0 cannot make is told to all", "[runtime][checkpoint][shared_folder]") {
  for (const auto& text : ask({"/proc/nowhere/checkpoints", "/tmp"}))
    CHECK_THAT(text, Catch::Contains("/proc/nowhere"));
}
