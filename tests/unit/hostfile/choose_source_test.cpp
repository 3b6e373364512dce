#include "hostfile/choose_source.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;
using Catch::Contains;

namespace {

// An environment in which everything speaks at once, in the documented order; and what is left without the first ones.
const Environment kSlurm{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_JOB_NUM_NODES", "2"}};
const Environment kPet{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "a"}};
const Environment kMpi{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"MASTER_ADDR", "a"}};

Environment joined(std::initializer_list<Environment> parts) {
  Environment all;
  for (const auto& part : parts) all.insert(part.begin(), part.end());
  return all;
}

bool everything_exists(const std::string&) {
  return true;
}
bool nothing_exists(const std::string&) {
  return false;
}

Source choose_source(const HostOptions& options, const Environment& environment, bool (*exists)(const std::string&)) {
  return choose_source(options, {.environment = environment, .exists = exists, .default_hostfile = "/where/hostfile"});
}

}  // namespace

TEST_CASE("sources are tried in order", "[hostfile][choose_source]") {
  Environment all = joined({kSlurm, kPet, kMpi});
  HostOptions options;
  options.hostfile = "mine";
  Source source = choose_source(options, all, everything_exists);
  CHECK(source.kind == SourceKind::kHostfile);
  CHECK(source.hostfile == "mine");
  CHECK(source.notice.empty());

  options.no_ssh = true;
  options.node_rank = 1;
  CHECK(choose_source(options, all, everything_exists).kind == SourceKind::kByHand);
  CHECK(choose_source(options, all, everything_exists).hostfile == "mine");

  source = choose_source({}, all, everything_exists);
  CHECK(source.kind == SourceKind::kSlurmAllocation);
  REQUIRE(source.slurm);
  CHECK(source.slurm->num_nodes == 2);
  CHECK_THAT(source.notice, Contains("slurm job 7: 2 nodes"));

  source = choose_source({}, joined({kPet, kMpi}), everything_exists);
  CHECK(source.kind == SourceKind::kExternalNode);
  CHECK(source.membership->source == "kubeflow (PET_NNODES)");

  source = choose_source({}, kMpi, everything_exists);
  CHECK(source.kind == SourceKind::kExternalNode);
  CHECK(source.membership->source == "open mpi (OMPI_COMM_WORLD_SIZE)");

  source = choose_source({}, {}, everything_exists);
  CHECK(source.kind == SourceKind::kHostfile);
  CHECK(source.hostfile == "/where/hostfile");
  CHECK_THAT(source.notice, Contains("/where/hostfile"));

  source = choose_source({}, {}, nothing_exists);
  CHECK(source.kind == SourceKind::kThisMachine);
  CHECK_FALSE(source.hostfile);
  CHECK(Surroundings{}.default_hostfile == "/job/hostfile");
}

TEST_CASE("the hostfile of MPI's operator comes before the default one", "[hostfile][choose_source]") {
  Environment operated{{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}};
  CHECK(choose_source({}, operated, everything_exists).hostfile == "/etc/mpi/hostfile");
  auto only_default = [](const std::string& path) { return path == "/where/hostfile"; };
  CHECK(choose_source({}, operated, only_default).hostfile == "/where/hostfile");
}

TEST_CASE("PET_NPROC_PER_NODE alone counts the ranks of this node", "[hostfile][choose_source]") {
  const Environment four{{"PET_NPROC_PER_NODE", "4"}};
  HostOptions options;
  Source source = choose_source(options, four, nothing_exists);
  CHECK(source.kind == SourceKind::kThisMachine);
  CHECK(source.ranks.slots == 4);
  CHECK_THAT(source.notice, Contains("PET_NPROC_PER_NODE=4"));
  CHECK_FALSE(choose_source(options, four, everything_exists).ranks.slots);  // the hostfile counts
  CHECK_FALSE(choose_source(options, {{"PET_NPROC_PER_NODE", "gpu"}}, nothing_exists).ranks.slots);
  CHECK(choose_source(options, {{"PET_NPROC_PER_NODE", "cpu"}}, nothing_exists).ranks.cpu_ranks);

  options.no_ssh = true;
  options.node_rank = 1;
  CHECK(choose_source(options, four, nothing_exists).ranks.slots == 4);
  options.num_gpus = 2;
  test::expect_error(ExitCode::kContradiction, {"PET_NPROC_PER_NODE=4", "--num_gpus 2"},
                     [&] { choose_source(options, four, nothing_exists); });
}

TEST_CASE("a filter of localhost keeps to this machine", "[hostfile][choose_source]") {
  HostOptions options;
  options.include = "localhost:1";
  CHECK(choose_source(options, kSlurm, everything_exists).kind == SourceKind::kThisMachine);
  options.include = "localhost@n1";
  CHECK(choose_source(options, kSlurm, everything_exists).kind == SourceKind::kSlurmAllocation);
}

TEST_CASE("all nodes agree on the membership of a srun task", "[hostfile][choose_source]") {
  Environment task = joined({kSlurm,
                             {{"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_NODELIST", "n[1-2]"},
                              {"SLURM_STEP_NUM_NODES", "2"},
                              {"SLURM_PROCID", "1"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_GPUS_ON_NODE", "8"}}});
  Source source = choose_source({}, task, nothing_exists);
  CHECK(source.kind == SourceKind::kSlurmTask);
  REQUIRE(source.membership);
  CHECK(source.membership->node_rank == 1);
  CHECK(source.membership->num_nodes == 2);
  CHECK(source.membership->ranks.slots == 8);
  CHECK(source.membership->master_addr == "n1");
  CHECK(source.membership->master_port == source.slurm->rendezvous_port);

  HostOptions options;
  options.master_addr = "ib-n1";
  options.master_port = 4000;
  source = choose_source(options, task, nothing_exists);
  CHECK(source.membership->master_addr == "ib-n1");
  CHECK(source.membership->master_port == 4000);

  options.num_nodes = 1;
  test::expect_error(ExitCode::kContradiction, {"--num_nodes 1", "2 nodes", "step 7.0"},
                     [&] { choose_source(options, task, nothing_exists); });
}

TEST_CASE("a part of a job's variables never makes every node a job of its own", "[hostfile][choose_source]") {
  const std::vector<Environment> parts{
      {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "2"}},
      {{"SLURM_JOBID", "7"}, {"SLURM_NNODES", "2"}},
      {{"SLURM_JOB_NUM_NODES", "2"}},
      {{"SLURM_JOB_NODELIST", "n[1-2]"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NODELIST", "n[1-2]"}, {"SLURM_STEP_NUM_NODES", "2"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_NODEID", "1"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "1"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_NODEID", "1"}},
      {{"PET_NODE_RANK", "0"}, {"PET_MASTER_ADDR", "a"}},
      {{"OMPI_COMM_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"MASTER_ADDR", "a"}},
      {{"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
      {{"PMI_SIZE", "2"}},
      {{"PMI_RANK", "0"}},
      {{"MPI_LOCALRANKID", "1"}},
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}},
      {{"WORLD_SIZE", "2"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}},
      {{"RANK", "1"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}},
      {{"GROUP_RANK", "1"}, {"MASTER_ADDR", "a"}},
  };
  HostOptions local;
  local.include = "localhost";
  for (const Environment& part : parts) {
    CAPTURE(part);
    test::expect_error(ExitCode::kContradiction, {"unset "}, [&] { choose_source({}, part, nothing_exists); });
    CHECK(choose_source(local, part, nothing_exists).kind == SourceKind::kThisMachine);
  }
  test::expect_error(ExitCode::kContradiction, {"SLURM_JOB_NUM_NODES=2", "SLURM_JOB_NODELIST are not both set"},
                     [&] { choose_source({}, parts.front(), nothing_exists); });
}

TEST_CASE("a part of a job's variables that tells of one process is this machine's", "[hostfile][choose_source]") {
  const std::vector<Environment> alone{
      {{"SLURM_JOB_ID", "7"}},
      {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
      {{"PET_MASTER_ADDR", "a"}},
      {{"OMPI_COMM_WORLD_SIZE", "1"}},
      {{"JOB_COMPLETION_INDEX", "3"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {{"RANK", "1"},
       {"WORLD_SIZE", "2"},
       {"LOCAL_RANK", "1"},
       {"MASTER_ADDR", "a"}},  // a program in a rank of another job
      {{"RANK", "first"}, {"MASTER_ADDR", "a"}},
      {{"RANK", "7"}, {"WORLD_SIZE", "9"}, {"MASTER_PORT", "1"}},  // stale in a shell
  };
  for (const Environment& part : alone) {
    CAPTURE(part);
    CHECK(choose_source({}, part, nothing_exists).kind == SourceKind::kThisMachine);
  }
  // Variables that another source completes, and hosts that a hostfile names.
  CHECK(choose_source({}, joined({kMpi, {{"SLURM_JOB_NUM_NODES", "2"}}}), nothing_exists).kind ==
        SourceKind::kExternalNode);
  CHECK(choose_source({}, {{"SLURM_JOB_NUM_NODES", "2"}}, everything_exists).kind == SourceKind::kHostfile);
}

TEST_CASE("externally started hosts cannot be filtered out", "[hostfile][choose_source]") {
  HostOptions options;
  options.exclude = "n2";
  test::expect_error(ExitCode::kContradiction, {"--exclude n2", "kubeflow"},
                     [&] { choose_source(options, kPet, nothing_exists); });
  CHECK(choose_source(options, kSlurm, nothing_exists).kind == SourceKind::kSlurmAllocation);
}

TEST_CASE("--no_ssh needs --node_rank, and vice versa", "[hostfile][choose_source]") {
  HostOptions options;
  options.no_ssh = true;
  test::expect_error(ExitCode::kUsage, {"--no_ssh needs --node_rank"},
                     [&] { choose_source(options, {}, nothing_exists); });
  options.no_ssh = false;
  options.node_rank = 0;
  test::expect_error(ExitCode::kUsage, {"--node_rank 0", "--no_ssh"},
                     [&] { choose_source(options, {}, nothing_exists); });
}
