#include "hostfile/cluster_environment.hpp"

#include <catch2/catch.hpp>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;

namespace {

constexpr int kCpus = 6;

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

void refused(const Environment& environment, const std::vector<std::string>& parts, const HostOptions& asked = {}) {
  test::expect_error(ExitCode::kContradiction, parts, [&] {
    if (!read_kubeflow(environment, asked, kCpus)) read_mpi(environment, asked);
  });
}

// As the Trainer sets them on the third of four pods.
const Environment kTrainJob{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                            {"PET_NNODES", "4"},
                            {"PET_NPROC_PER_NODE", "1"},
                            {"PET_NODE_RANK", "2"},
                            {"PET_MASTER_ADDR", "gpt-node-0-0.gpt"},
                            {"PET_MASTER_PORT", "29500"}};

// As the Training Operator sets them on the second worker of a PyTorchJob with a master; WORLD_SIZE counts processes.
const Environment kPyTorchJob{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                              {"PYTHONUNBUFFERED", "1"},
                              {"MASTER_ADDR", "job-master-0"},
                              {"MASTER_PORT", "23456"},
                              {"PET_MASTER_ADDR", "job-master-0"},
                              {"PET_MASTER_PORT", "23456"},
                              {"WORLD_SIZE", "24"},
                              {"RANK", "2"},
                              {"PET_NPROC_PER_NODE", "8"},
                              {"PET_NODE_RANK", "2"},
                              {"PET_NNODES", "3"}};

const Environment kOpenMpi{{"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"MASTER_ADDR", "n1"}};

const Environment kIntelMpi{{"PMI_RANK", "1"},        {"PMI_SIZE", "2"},     {"MPI_LOCALRANKID", "0"},
                            {"MPI_LOCALNRANKS", "1"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "4000"}};

}  // namespace

TEST_CASE("a plain environment gives no membership", "[hostfile][cluster]") {
  CHECK_FALSE(read_kubeflow({}, {}, kCpus));
  CHECK_FALSE(read_mpi({}, {}));
  // A rank's own variables, or those of a shell outside of a pod, are not a node's.
  Environment rank{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  CHECK_FALSE(read_kubeflow(rank, {}, kCpus));
  CHECK_FALSE(read_kubeflow({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, {}, kCpus));
}

TEST_CASE("a pod of a TrainJob has its membership", "[hostfile][cluster]") {
  auto membership = read_kubeflow(kTrainJob, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->source == "kubeflow (PET_NNODES)");
  CHECK(membership->node_rank == 2);
  CHECK(membership->num_nodes == 4);
  CHECK(membership->ranks.slots == 1);
  CHECK(membership->master_addr == "gpt-node-0-0.gpt");
  CHECK(membership->master_port == 29500);
}

TEST_CASE("a pod of a PyTorchJob counts nodes by PET_NNODES, not by WORLD_SIZE", "[hostfile][cluster]") {
  auto membership = read_kubeflow(kPyTorchJob, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->num_nodes == 3);
  CHECK(membership->node_rank == 2);
  CHECK(membership->ranks.slots == 8);
  CHECK(membership->master_port == 23456);
  membership = read_kubeflow(without(kPyTorchJob, "PET_NODE_RANK"), {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->node_rank == 2);
}

TEST_CASE("a pod of an older operator has RANK and WORLD_SIZE only", "[hostfile][cluster]") {
  Environment pod{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"MASTER_ADDR", "m"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}};
  auto membership = read_kubeflow(pod, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->num_nodes == 2);
  CHECK(membership->node_rank == 1);
  CHECK_FALSE(membership->ranks.slots);
  CHECK_FALSE(membership->master_port);
  refused(with(pod, {{"RANK", "2"}}), {"RANK=2 does not fit WORLD_SIZE=2"});
}

TEST_CASE("an indexed job's completion index is the node's rank", "[hostfile][cluster]") {
  auto membership =
      read_kubeflow({{"PET_NNODES", "4"}, {"JOB_COMPLETION_INDEX", "3"}, {"MASTER_ADDR", "m"}}, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->node_rank == 3);
}

TEST_CASE("PET_NPROC_PER_NODE accepts torchrun's values", "[hostfile][cluster]") {
  for (const char* word : {"auto", "gpu", ""}) {
    auto membership = read_kubeflow(with(kTrainJob, {{"PET_NPROC_PER_NODE", word}}), {}, kCpus);
    REQUIRE(membership);
    CHECK_FALSE(membership->ranks.slots);
    CHECK_FALSE(membership->ranks.cpu_ranks);
  }
  auto membership = read_kubeflow(with(kTrainJob, {{"PET_NPROC_PER_NODE", "cpu"}}), {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->ranks.slots == kCpus);
  CHECK(membership->ranks.cpu_ranks);
  refused(with(kTrainJob, {{"PET_NPROC_PER_NODE", "many"}}), {"PET_NPROC_PER_NODE='many'"});
  refused(with(kTrainJob, {{"PET_NPROC_PER_NODE", "0"}}), {"PET_NPROC_PER_NODE='0'"});
}

TEST_CASE("an elastic job is refused unless its bounds are one number", "[hostfile][cluster]") {
  refused(with(kTrainJob, {{"PET_NNODES", "2:4"}}), {"PET_NNODES=2:4", "elastic", "minReplicas"});
  for (const char* bad : {"4:2", "0:2", "1:2:3", "a", ":", "2:", "-1", "0"}) {
    refused(with(kTrainJob, {{"PET_NNODES", bad}}), {std::string("PET_NNODES='") + bad});
  }
  auto membership =
      read_kubeflow({{"PET_NNODES", "4:4"}, {"PET_NODE_RANK", "1"}, {"PET_RDZV_ENDPOINT", "w-0:23456"}}, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->num_nodes == 4);
  CHECK(membership->master_addr == "w-0");
  CHECK(membership->master_port == 23456);
  refused({{"PET_NNODES", "4:4"}, {"PET_RDZV_ENDPOINT", "w-0:23456"}}, {"PET_NODE_RANK", "elasticPolicy"});
}

TEST_CASE("a rendezvous endpoint is a host with or without a port", "[hostfile][cluster]") {
  auto endpoint = [](const char* text) {
    return *read_kubeflow({{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_RDZV_ENDPOINT", text}}, {}, kCpus);
  };
  CHECK(endpoint("w-0").master_addr == "w-0");
  CHECK_FALSE(endpoint("w-0").master_port);
  CHECK(endpoint("[fd00::1]:400").master_addr == "fd00::1");
  CHECK(endpoint("[fd00::1]:400").master_port == 400);
  for (const char* bad : {":400", "w:", "w:0", "w:70000", "[fd00::1", "w:4x"}) {
    refused({{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_RDZV_ENDPOINT", bad}},
            {std::string("PET_RDZV_ENDPOINT='") + bad});
  }
}

TEST_CASE("a single node needs neither rank nor address", "[hostfile][cluster]") {
  auto membership = read_kubeflow({{"PET_NNODES", "1"}}, {}, kCpus);
  REQUIRE(membership);
  CHECK(membership->node_rank == 0);
  CHECK(membership->master_addr.empty());
}

TEST_CASE("contradicting variables are refused with names and values", "[hostfile][cluster]") {
  refused(with(kTrainJob, {{"PET_NODE_RANK", "4"}}), {"PET_NODE_RANK=4 does not fit PET_NNODES=4"});
  refused(without(kTrainJob, "PET_MASTER_ADDR"), {"4 nodes", "MASTER_ADDR is not set"});
  refused(without(kTrainJob, "PET_NODE_RANK"), {"PET_NNODES=4", "PET_NODE_RANK", "JOB_COMPLETION_INDEX"});
  refused(with(kPyTorchJob, {{"MASTER_ADDR", "other"}}), {"PET_MASTER_ADDR=job-master-0", "MASTER_ADDR=other"});
  refused(with(kPyTorchJob, {{"MASTER_PORT", "1"}}), {"PET_MASTER_PORT=23456", "MASTER_PORT=1"});
  refused(with(kTrainJob, {{"PET_MASTER_PORT", "70000"}}), {"PET_MASTER_PORT='70000'", "65535"});
}

TEST_CASE("options that differ from the environment are refused", "[hostfile][cluster]") {
  HostOptions asked;
  asked.num_nodes = 2;
  refused(kTrainJob, {"PET_NNODES=4", "--num_nodes 2"}, asked);
  refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}), {"OMPI_COMM_WORLD_SIZE=4", "--num_nodes 2"}, asked);
  asked.num_nodes = 4;
  asked.num_gpus = 8;
  refused(kTrainJob, {"PET_NPROC_PER_NODE=1", "--num_gpus 8"}, asked);
  asked.num_gpus = 1;
  asked.master_addr = "elsewhere";
  asked.master_port = 1234;
  auto membership = read_kubeflow(kTrainJob, asked, kCpus);
  REQUIRE(membership);
  CHECK(membership->master_addr == "elsewhere");
  CHECK(membership->master_port == 1234);
}

TEST_CASE("mpirun with one process per node gives the node's membership", "[hostfile][cluster]") {
  auto membership = read_mpi(kOpenMpi, {});
  REQUIRE(membership);
  CHECK(membership->source == "open mpi (OMPI_COMM_WORLD_SIZE)");
  CHECK(membership->node_rank == 1);
  CHECK(membership->num_nodes == 2);
  CHECK(membership->master_addr == "n1");
  CHECK_FALSE(membership->master_port);
  CHECK_FALSE(membership->ranks.slots);
  membership = read_mpi(kIntelMpi, {});
  REQUIRE(membership);
  CHECK(membership->source == "pmi (PMI_SIZE)");
  CHECK(membership->node_rank == 1);
  CHECK(membership->master_port == 4000);
  // DeepSpeed's own mpich runner passes the sizes itself.
  membership = read_mpi({{"PMIX_RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_SIZE", "1"}, {"MASTER_ADDR", "a"}}, {});
  REQUIRE(membership);
  CHECK(membership->num_nodes == 2);
}

TEST_CASE("mpirun with several processes per node is refused with advice", "[hostfile][cluster]") {
  refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
          {"OMPI_COMM_WORLD_LOCAL_SIZE=2", "ppr:1:node", "dsworker"});
  refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PALS_LOCAL_RANKID", "1"}}, {"PALS_LOCAL_RANKID=1", "-ppn 1"});
  refused(without(kOpenMpi, "MASTER_ADDR"), {"MASTER_ADDR is not set", "--master_addr"});
  refused(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE"), {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set"});
  refused(with(kIntelMpi, {{"PMI_RANK", "2"}}), {"PMI_RANK=2 does not fit PMI_SIZE=2"});
}
