#include "rendezvous/launch_env.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "base/error.hpp"

using Catch::Contains;
using dslaunch::rendezvous::launch_env_from_environment;
using dslaunch::rendezvous::LaunchEnv;
using dslaunch::rendezvous::to_environment;

namespace {

// The process's environment with nothing but `variables` of ours in it, for the time of a scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : {"RANK",
                             "LOCAL_RANK",
                             "WORLD_SIZE",
                             "LOCAL_WORLD_SIZE",
                             "NODE_RANK",
                             "GROUP_RANK",
                             "GROUP_WORLD_SIZE",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "DSLAUNCH_JOB_ID",
                             "DSLAUNCH_TOKEN",
                             "DSLAUNCH_HOST",
                             "DSLAUNCH_AGENT_STORE",
                             "DSLAUNCH_RANK_HOSTS",
                             "TORCHELASTIC_RUN_ID",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "TORCHELASTIC_RESTART_COUNT",
                             "TORCHELASTIC_MAX_RESTARTS",
                             "OMPI_COMM_WORLD_RANK",
                             "OMPI_COMM_WORLD_SIZE",
                             "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE",
                             "PMI_RANK",
                             "PMI_SIZE",
                             "PMIX_RANK",
                             "MPI_LOCALRANKID",
                             "MPI_LOCALNRANKS",
                             "PALS_LOCAL_RANKID",
                             "PALS_LOCAL_SIZE",
                             "LOCAL_SIZE"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    names_ = variables;
  }
  ~Environment() {
    for (const auto& [name, value] : names_) ::unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> names_;
};

std::string error_for(const std::map<std::string, std::string>& variables) {
  Environment scope(variables);
  try {
    launch_env_from_environment();
  } catch (const dslaunch::UserError& error) {
    CHECK(error.code() == dslaunch::ExitCode::kContradiction);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("the worker reads the environment that the launcher writes", "[rendezvous][launch_env]") {
  LaunchEnv env;
  env.rank = 5;
  env.local_rank = 1;
  env.node_rank = 1;
  env.world_size = 6;
  env.local_world_size = 2;
  env.num_nodes = 2;
  env.master_addr = "node-a";
  env.master_port = 40123;
  env.host = "node-b";
  env.job_id = "job-17";
  env.token.assign(32, 0xC3);
  env.agent_store = true;
  env.rank_hosts = {"node-a", "node-a", "node-a", "node-a", "node-b", "node-b"};
  env.restart_count = 2;
  env.max_restarts = 3;

  auto written = to_environment(env);
  CHECK(written.at("DSLAUNCH_RANK_HOSTS") == "node-a*4,node-b*2");
  CHECK(written.at("GROUP_RANK") == "1");
  CHECK(written.at("ROLE_RANK") == "5");
  CHECK(written.at("ROLE_WORLD_SIZE") == "6");
  CHECK(written.at("GROUP_WORLD_SIZE") == "2");
  CHECK(written.at("TORCHELASTIC_USE_AGENT_STORE") == "False");

  Environment scope(written);
  auto read = launch_env_from_environment();
  CHECK(read.rank == 5);
  CHECK(read.local_rank == 1);
  CHECK(read.node_rank == 1);
  CHECK(read.world_size == 6);
  CHECK(read.local_world_size == 2);
  CHECK(read.num_nodes == 2);
  CHECK(read.master_addr == "node-a");
  CHECK(read.master_port == 40123);
  CHECK(read.host == "node-b");
  CHECK(read.job_id == "job-17");
  CHECK(read.token == env.token);
  CHECK(read.agent_store);
  CHECK_FALSE(read.torch_agent_store);
  CHECK(read.rank_hosts == env.rank_hosts);
  CHECK(read.restart_count == 2);
  CHECK(read.max_restarts == 3);
}

TEST_CASE("an empty environment is a world of one", "[rendezvous][launch_env]") {
  Environment scope({});
  auto env = launch_env_from_environment();
  CHECK(env.rank == 0);
  CHECK(env.world_size == 1);
  CHECK(env.master_port == 0);
  CHECK_FALSE(env.host.empty());
}

TEST_CASE("a leftover MASTER_PORT alone does not make a job", "[rendezvous][launch_env]") {
  Environment scope({{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}});
  CHECK(launch_env_from_environment().master_port == 0);
}

TEST_CASE("rank, world size and a local address suffice for a manual start", "[rendezvous][launch_env]") {
  Environment scope({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  auto env = launch_env_from_environment();
  CHECK(env.local_rank == 1);
  CHECK(env.local_world_size == 2);
  CHECK(env.num_nodes == 1);
  CHECK(env.master_port == 29500);
  CHECK_FALSE(env.agent_store);
}

TEST_CASE("with torchrun's environment its store holds the port", "[rendezvous][launch_env]") {
  Environment scope({{"RANK", "3"},
                     {"LOCAL_RANK", "1"},
                     {"WORLD_SIZE", "4"},
                     {"LOCAL_WORLD_SIZE", "2"},
                     {"GROUP_RANK", "1"},
                     {"GROUP_WORLD_SIZE", "2"},
                     {"MASTER_ADDR", "h0"},
                     {"MASTER_PORT", "1234"},
                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                     {"TORCHELASTIC_RUN_ID", "abc"},
                     {"TORCHELASTIC_RESTART_COUNT", "2"}});
  auto env = launch_env_from_environment();
  CHECK(env.torch_agent_store);
  CHECK(env.torch_run == "abc.2");
  CHECK(env.node_rank == 1);
  CHECK(env.num_nodes == 2);
  CHECK(env.token.empty());
}

TEST_CASE("a nested torchrun's variables override dslaunch's", "[rendezvous][launch_env]") {
  LaunchEnv outer;
  outer.job_id = "job-1";
  outer.token = std::vector<uint8_t>(32, 7);
  outer.master_port = 1111;
  outer.agent_store = true;
  outer.rank_hosts = {"h0"};
  auto variables = to_environment(outer);
  for (auto [name, value] : std::map<std::string, std::string>{{"RANK", "1"},
                                                               {"LOCAL_RANK", "1"},
                                                               {"WORLD_SIZE", "2"},
                                                               {"LOCAL_WORLD_SIZE", "2"},
                                                               {"MASTER_PORT", "2222"},
                                                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                               {"TORCHELASTIC_RUN_ID", "inner"}}) {
    variables[name] = value;
  }
  Environment scope(variables);
  auto env = launch_env_from_environment();
  CHECK(env.job_id == "job-1");
  CHECK(env.master_port == 2222);
  CHECK(env.torch_agent_store);
  CHECK(env.torch_run == "inner.0");
  CHECK_FALSE(env.agent_store);
  CHECK(env.token.empty());
  CHECK(env.rank_hosts.empty());
}

TEST_CASE("ranks started by mpirun get their rank from its variables", "[rendezvous][launch_env]") {
  std::map<std::string, std::string> open_mpi{{"OMPI_COMM_WORLD_RANK", "3"},
                                              {"OMPI_COMM_WORLD_SIZE", "4"},
                                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                              {"MASTER_ADDR", "n1"}};
  auto check = [](const std::map<std::string, std::string>& variables) {
    Environment scope(variables);
    LaunchEnv env = launch_env_from_environment();
    CHECK(env.rank == 3);
    CHECK(env.world_size == 4);
    CHECK(env.local_rank == 1);
    CHECK(env.local_world_size == 2);
    CHECK(env.node_rank == 1);
    CHECK(env.num_nodes == 2);
    CHECK(env.master_addr == "n1");
  };
  check(open_mpi);
  check({{"PMI_RANK", "3"},
         {"PMI_SIZE", "4"},
         {"MPI_LOCALRANKID", "1"},
         {"MPI_LOCALNRANKS", "2"},
         {"MASTER_ADDR", "n1"}});
  // DeepSpeed's mpich runner passes the sizes in its own variables.
  check({{"PMIX_RANK", "3"},
         {"PALS_LOCAL_RANKID", "1"},
         {"WORLD_SIZE", "4"},
         {"LOCAL_SIZE", "2"},
         {"MASTER_ADDR", "n1"}});

  auto missing = open_mpi;
  missing.erase("MASTER_ADDR");
  CHECK_THAT(error_for(missing), Contains("MASTER_ADDR is not set"));
  missing = open_mpi;
  missing.erase("OMPI_COMM_WORLD_SIZE");
  CHECK_THAT(error_for(missing), Contains("WORLD_SIZE is not set"));
}

TEST_CASE("RANK overrides mpirun's variables", "[rendezvous][launch_env]") {
  Environment scope({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  LaunchEnv env = launch_env_from_environment();
  CHECK(env.rank == 0);
  CHECK(env.world_size == 1);
  CHECK(env.local_world_size == 1);
}

TEST_CASE("an incomplete or contradictory environment is an error that names the variable",
          "[rendezvous][launch_env]") {
  CHECK_THAT(error_for({{"RANK", "0"}}), Contains("WORLD_SIZE is not set"));
  CHECK_THAT(error_for({{"WORLD_SIZE", "2"}}), Contains("RANK is not set"));
  CHECK_THAT(error_for({{"LOCAL_RANK", "0"}}), Contains("RANK is not set"));
  CHECK_THAT(error_for({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), Contains("RANK=2") && Contains("WORLD_SIZE=2"));
  CHECK_THAT(error_for({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), Contains("RANK='x'"));
  CHECK_THAT(error_for({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), Contains("RANK='-1'"));
  CHECK_THAT(error_for({{"RANK", ""}, {"WORLD_SIZE", "2"}}), Contains("RANK is set but empty"));
  CHECK_THAT(error_for({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), Contains("WORLD_SIZE='0'"));
  CHECK_THAT(error_for({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}}),
             Contains("MASTER_ADDR is not set"));
  std::map<std::string, std::string> two{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}};
  auto with = [&](std::map<std::string, std::string> more) {
    more.insert(two.begin(), two.end());
    return error_for(more);
  };
  CHECK_THAT(with({{"MASTER_PORT", "70000"}}), Contains("MASTER_PORT='70000'"));
  CHECK_THAT(with({{"MASTER_PORT", "29500x"}}), Contains("MASTER_PORT='29500x'"));
  CHECK_THAT(with({{"LOCAL_RANK", "1"}}), Contains("LOCAL_RANK=1 is larger than RANK=0"));
  CHECK_THAT(with({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "4"}}), Contains("LOCAL_WORLD_SIZE=4"));
  CHECK_THAT(with({{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}), Contains("LOCAL_RANK=2"));
  CHECK_THAT(with({{"NODE_RANK", "1"}, {"GROUP_RANK", "0"}}), Contains("NODE_RANK=1"));
  CHECK_THAT(with({{"NODE_RANK", "3"}}), Contains("NODE_RANK=3"));
  CHECK_THAT(with({{"DSLAUNCH_AGENT_STORE", "1"}}), Contains("MASTER_PORT is not"));
  CHECK_THAT(with({{"DSLAUNCH_RANK_HOSTS", "a"}}), Contains("DSLAUNCH_RANK_HOSTS"));
  CHECK_THAT(with({{"DSLAUNCH_RANK_HOSTS", "a*3"}}), Contains("DSLAUNCH_RANK_HOSTS"));
  CHECK_THAT(with({{"DSLAUNCH_RANK_HOSTS", "a,*"}}), Contains("DSLAUNCH_RANK_HOSTS"));
  CHECK_THAT(error_for({{"OMPI_COMM_WORLD_SIZE", "2"}}), Contains("OMPI_COMM_WORLD_SIZE=2 but neither"));
  CHECK_THAT(error_for({{"PMI_SIZE", "2"}}), Contains("PMI_SIZE=2 but neither"));
  CHECK_THAT(error_for({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "far-away"}}),
             Contains("LOCAL_RANK is not set"));
}

TEST_CASE("a bad token is refused without repeating it", "[rendezvous][launch_env]") {
  auto message = error_for({{"DSLAUNCH_TOKEN", "5ec12e7"}});
  CHECK_THAT(message, Contains("DSLAUNCH_TOKEN"));
  CHECK_THAT(message, !Contains("5ec12e7"));
}
