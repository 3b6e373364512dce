#include "launch/records/job_id.hpp"

#include <catch2/catch.hpp>
#include <set>

using namespace dslaunch::launch;

TEST_CASE("a job's id has enough random digits for containers that share a second and a pid", "[launch][job_id]") {
  std::set<std::string> random_parts;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = make_job_id([](const auto&) { return false; });
    CHECK(is_job_id(id));
    random_parts.insert(id.substr(id.rfind('-') + 1));
  }
  CHECK(random_parts.size() == 1000);  // of 65536 values some would be equal
}

TEST_CASE("the id of a recorded job is not reused", "[launch][job_id]") {
  std::set<std::string> refused;
  const std::string id =
      make_job_id([&](const std::string& taken) { return refused.size() < 3 && refused.insert(taken).second; });
  CHECK(refused.size() == 3);
  CHECK(refused.count(id) == 0);
}

TEST_CASE("job ids of earlier versions are accepted", "[launch][job_id]") {
  CHECK(is_job_id("20260131-174502-4711-c0de"));
  CHECK(is_job_id("20260131-174502-4711-c0de1234"));
  CHECK_FALSE(is_job_id("20260131-174502-4711-c0de12"));
  CHECK_FALSE(is_job_id("20260131-174502-4711-C0DE1234"));
  CHECK_FALSE(is_job_id("runs"));
}
