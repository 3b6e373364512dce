#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>

#include "support/checkout.hpp"

namespace {

// Output and exit status of a command line.
std::pair<std::string, int> run(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::array<char, 4096> piece{};
  while (size_t got = std::fread(piece.data(), 1, piece.size(), pipe)) output.append(piece.data(), got);
  return {output, ::pclose(pipe)};
}

}  // namespace

TEST_CASE("ranks that torchrun started find each other beside torchrun's own store",
          "[rendezvous][store_torchrun][multiproc][slow]") {
  if (::access(DSL_TORCHRUN, X_OK) != 0) {
    WARN("no torchrun at " DSL_TORCHRUN ": skipped");
    return;
  }
  // --standalone lets torchrun choose its port, so that tests may run side by side.
  auto [output, status] = run(DSL_TORCHRUN " --standalone --nnodes 1 --nproc-per-node 3 --no-python " +
                              dslaunch::test::built_file("bin/rendezvous_probe"));
  INFO(output);
  CHECK(status == 0);
  CHECK(output.find("rank 0 of 3 got 11") != std::string::npos);
  CHECK(output.find("rank 1 of 3 got 22") != std::string::npos);
  CHECK(output.find("rank 2 of 3 got 0") != std::string::npos);
}
