#include "launch/supervisor/missing_ranks.hpp"

#include <catch2/catch.hpp>

using namespace dslaunch::launch;

TEST_CASE("describes what is known about each missing rank", "[launch][missing_ranks]") {
  std::vector<RankRecord> records(3);
  records[1] = {.rank = 1, .host = "b", .pid = 812};
  records[2] = {.rank = 2, .host = "c", .pid = 9, .cause = dslaunch::spawn::ExitCause{.number = 1}};
  std::string text = describe_missing_ranks({0, 1, 2}, records);
  CHECK_THAT(text, Catch::Contains("3 of 3 ranks") && Catch::Contains("not started"));
  CHECK_THAT(text, Catch::Contains("1 (on b, pid 812") && Catch::Contains("2 (on c, ended: exit code 1)"));
}

TEST_CASE("names some of many missing ranks and counts the rest", "[launch][missing_ranks]") {
  std::vector<RankRecord> records(100);
  std::vector<int> missing;
  for (int rank = 0; rank < 100; ++rank) missing.push_back(rank);
  CHECK_THAT(describe_missing_ranks(missing, records), Catch::Contains("and 92 more"));
}

TEST_CASE("ignores a missing rank that is not part of the job", "[launch][missing_ranks]") {
  const std::vector<RankRecord> records(2);
  CHECK_THAT(describe_missing_ranks({99, 1, -1, 2}, records), Catch::Contains("1 of 2 ranks"));
}
