#include "hostfile/resolve.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;
using Catch::Contains;

namespace {

class TemporaryHostfile {
 public:
  explicit TemporaryHostfile(const std::string& text) : path_(dir_.write("hostfile", text)) {}
  const std::string& path() const { return path_; }

 private:
  test::TempDir dir_;
  std::string path_;
};

std::string text(const Allocation& allocation) {
  std::string out;
  for (const auto& host : allocation.hosts) {
    out += (out.empty() ? "" : " ") + host.name + "=";
    for (size_t i = 0; i < host.slots.size(); ++i) out += (i ? "," : "") + std::to_string(host.slots[i]);
  }
  return out;
}

std::string refusal(const Request& request, ExitCode code) {
  try {
    resolve(request);
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  FAIL("accepted");
  return {};
}

}  // namespace

TEST_CASE("without options all hosts of a hostfile are used", "[hostfile][resolve]") {
  TemporaryHostfile file("b slots=2\nalice@a:2222 slots=1\n");
  Request request;
  request.asked.hostfile = file.path();
  auto allocation = resolve(request);
  CHECK(allocation.source == "hostfile " + file.path());
  CHECK(text(allocation) == "b=0,1 a=0");
  CHECK(allocation.world_size() == 3);
  CHECK(hosts_json(allocation) == R"({"source":"hostfile )" + file.path() +
                                      R"(","world_size":3,"hosts":[)"
                                      R"({"host":"b","user":null,"port":null,"slots":[0,1]},)"
                                      R"({"host":"a","user":"alice","port":2222,"slots":[0]}]})");
}

TEST_CASE("num_nodes and num_gpus take the first hosts and slots", "[hostfile][resolve]") {
  TemporaryHostfile file("a slots=4\nb slots=4\nc slots=1\n");
  Request request;
  request.asked.hostfile = file.path();
  request.asked.num_nodes = 2;
  CHECK(text(resolve(request)) == "a=0,1,2,3 b=0,1,2,3");
  request.asked.num_gpus = 3;
  CHECK(text(resolve(request)) == "a=0,1,2 b=0,1,2");
  request.asked.num_nodes = 4;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable), Contains("--num_nodes 4") && Contains("has only 3 hosts"));
  request.asked.num_nodes.reset();
  request.asked.num_gpus = 8;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable),
             Contains("--num_gpus 8") && Contains("a has 4") && Contains("b has 4") && Contains("c has 1"));
}

TEST_CASE("num_gpus sets the slots of a bare host", "[hostfile][resolve]") {
  TemporaryHostfile file("a\nb\n");
  Request request;
  request.asked.hostfile = file.path();
  CHECK(text(resolve(request)) == "a=0 b=0");
  request.asked.num_gpus = 2;
  CHECK(text(resolve(request)) == "a=0,1 b=0,1");
}

TEST_CASE("filters apply to the hostfile", "[hostfile][resolve]") {
  TemporaryHostfile file("a slots=2\nb slots=2\n");
  Request request;
  request.asked.hostfile = file.path();
  request.asked.include = "b@a:1";
  CHECK(text(resolve(request)) == "a=1 b=0,1");
  request.asked.include.clear();
  request.asked.exclude = "a:0";
  CHECK(text(resolve(request)) == "a=1 b=0,1");
}

TEST_CASE("options that exclude each other are refused", "[hostfile][resolve]") {
  Request request;
  request.asked.include = request.asked.exclude = "localhost:0";
  CHECK_THAT(refusal(request, ExitCode::kUsage), Contains("--include and --exclude exclude each other"));
  request.asked.exclude.clear();
  request.asked.num_gpus = 1;
  CHECK_THAT(refusal(request, ExitCode::kUsage), Contains("--include") && Contains("leave out --num_gpus"));
  request.asked.include.clear();
  request.asked.exclude = "localhost:0";
  request.asked.num_gpus.reset();
  request.asked.num_nodes = 1;
  CHECK_THAT(refusal(request, ExitCode::kUsage), Contains("--exclude") && Contains("leave out --num_nodes"));
}

TEST_CASE("counts below one are a usage error", "[hostfile][resolve]") {
  Request request;
  request.asked.num_gpus = 0;
  CHECK_THAT(refusal(request, ExitCode::kUsage), Contains("--num_gpus 0"));
  request.asked.num_gpus.reset();
  request.asked.num_nodes = -1;
  CHECK_THAT(refusal(request, ExitCode::kUsage), Contains("--num_nodes -1"));
}

TEST_CASE("without a hostfile this machine's devices are the slots", "[hostfile][resolve]") {
  Request request;
  request.local_slots = {1, 3};
  CHECK(text(resolve(request)) == "localhost=1,3");
  CHECK(resolve(request).source == "local");
  request.asked.num_gpus = 1;
  CHECK(text(resolve(request)) == "localhost=1");
  request.asked.num_gpus = 3;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable), Contains("--num_gpus 3") && Contains("localhost has 2"));
  request.asked.num_gpus.reset();
  request.asked.include = "localhost:3";
  CHECK(text(resolve(request)) == "localhost=3");
  request.asked.include = "localhost:2";
  CHECK_THAT(refusal(request, ExitCode::kBadInput), Contains("no slot 2 (it has slots 1,3)"));
  request.asked.include.clear();
  request.asked.num_nodes = 2;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable), Contains("only this machine"));
}

TEST_CASE("CPU ranks are as many as the options ask for", "[hostfile][resolve]") {
  Request request;
  request.any_local_slots = true;
  CHECK(text(resolve(request)) == "localhost=0");
  request.asked.num_gpus = 4;
  CHECK(text(resolve(request)) == "localhost=0,1,2,3");
  request.asked.num_gpus.reset();
  request.asked.include = "localhost:1,5";
  CHECK(text(resolve(request)) == "localhost=1,5");
  request.asked.include = "localhost:2000000000";
  CHECK_THAT(refusal(request, ExitCode::kBadInput), Contains("no slot 2000000000"));
}

TEST_CASE("a missing hostfile is never a silent local run", "[hostfile][resolve]") {
  Request request;
  request.asked.hostfile = "/nonexistent/hosts";
  CHECK_THAT(refusal(request, ExitCode::kNoInput), Contains("/nonexistent/hosts"));
}

TEST_CASE("a scheduler's allocation is filtered and counted like a hostfile", "[hostfile][resolve]") {
  Request request;
  request.allocated = Allocation{"slurm job 7", {{"n1", {}, {}, {0, 1}}, {"n2", {}, {}, {0, 1}}}};
  CHECK(text(resolve(request)) == "n1=0,1 n2=0,1");
  CHECK(resolve(request).source == "slurm job 7");
  request.asked.include = "n2:1";
  CHECK(text(resolve(request)) == "n2=1");
  request.asked.include.clear();
  request.asked.num_nodes = 3;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable), Contains("--num_nodes 3: slurm job 7 has only 2 hosts"));
  request.asked.num_nodes = 1;
  request.asked.num_gpus = 4;
  CHECK_THAT(refusal(request, ExitCode::kUnavailable), Contains("n1 has 2"));
  request.allocated_slots_open = true;
  CHECK(text(resolve(request)) == "n1=0,1,2,3");
  TemporaryHostfile file("a slots=1\n");
  request = {};
  request.allocated = Allocation{"slurm job 7", {{"n1", {}, {}, {0}}}};
  request.asked.hostfile = file.path();
  CHECK(text(resolve(request)) == "a=0");
}
