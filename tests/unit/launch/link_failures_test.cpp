#include "launch/link_failures.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("hosts that failed alike share a row", "[launch][link_failures]") {
  spawn::LinkFailure refused{ExitCode::kUnavailable, "connect", "connection refused"};
  spawn::LinkFailure unknown{ExitCode::kPermission, "host key", "not in known_hosts"};
  std::string table = tell_failures({{"a", refused}, {"b", unknown}, {"c", refused}});
  CHECK_THAT(table, Catch::Contains("3 hosts failed"));
  CHECK_THAT(table, Catch::Contains("  a c   connect   connection refused\n"));
  CHECK_THAT(table, Catch::Contains("  b     host key  not in known_hosts\n"));
  CHECK(tell_failures({}).empty());
}

TEST_CASE("of many hosts in one row some are named", "[launch][link_failures]") {
  std::vector<std::pair<std::string, spawn::LinkFailure>> failures;
  for (int i = 0; i < 64; ++i) failures.push_back({"n" + std::to_string(i), {ExitCode::kUnavailable, "connect", "x"}});
  CHECK_THAT(tell_failures(failures), Catch::Contains("n0 n1 n2 n3 and 60 more"));
}
