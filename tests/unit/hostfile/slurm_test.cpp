#include "hostfile/slurm.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

using namespace dslaunch;
using namespace dslaunch::hostfile;
using Catch::Contains;

namespace {

using Names = std::vector<std::string>;
using Counts = std::vector<int>;

std::string refusal(const Environment& environment) {
  try {
    read_slurm(environment);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kContradiction);
    return error.what();
  }
  FAIL("accepted");
  return {};
}

template <class Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::kContradiction);
    return error.what();
  }
  FAIL("accepted");
  return {};
}

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

std::string text(const SlurmSituation& situation) {
  std::string out;
  for (const auto& host : situation.allocation.hosts) {
    out += (out.empty() ? "" : " ") + host.name + "*" + std::to_string(host.slots.size());
    CHECK(host.slots.front() == 0);
  }
  return out;
}

// What Slurm 22.05.8 set, recorded on three nodes with a gres of 8 GPUs; variables that nobody here reads left out.
const Environment kSalloc{{"SLURM_JOBID", "1"},
                          {"SLURM_JOB_CPUS_PER_NODE", "1(x2)"},
                          {"SLURM_JOB_ID", "1"},
                          {"SLURM_JOB_NAME", "interactive"},
                          {"SLURM_JOB_NODELIST", "n[1-2]"},
                          {"SLURM_JOB_NUM_NODES", "2"},
                          {"SLURM_NNODES", "2"},
                          {"SLURM_NODELIST", "n[1-2]"},
                          {"SLURM_NODE_ALIASES", "(null)"},
                          {"SLURM_TASKS_PER_NODE", "1(x2)"}};

const Environment kBatchScript = with(kSalloc, {{"ENVIRONMENT", "BATCH"},
                                                {"SLURMD_NODENAME", "n1"},
                                                {"SLURM_CPUS_ON_NODE", "1"},
                                                {"SLURM_GPUS_ON_NODE", "4"},
                                                {"SLURM_GTIDS", "0"},
                                                {"SLURM_JOBID", "6"},
                                                {"SLURM_JOB_ID", "6"},
                                                {"SLURM_LOCALID", "0"},
                                                {"SLURM_NODEID", "0"},
                                                {"SLURM_PRIO_PROCESS", "0"},
                                                {"SLURM_PROCID", "0"},
                                                {"SLURM_TASK_PID", "244"}});

// srun --ntasks-per-node=1 inside of that script, on its second node.
const Environment kTaskInBatch = with(kBatchScript, {{"SLURMD_NODENAME", "n2"},
                                                     {"SLURM_GTIDS", "1"},
                                                     {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                                                     {"SLURM_NODEID", "1"},
                                                     {"SLURM_NPROCS", "2"},
                                                     {"SLURM_NTASKS", "2"},
                                                     {"SLURM_NTASKS_PER_NODE", "1"},
                                                     {"SLURM_PROCID", "1"},
                                                     {"SLURM_SRUN_COMM_HOST", "127.0.0.1"},
                                                     {"SLURM_STEPID", "0"},
                                                     {"SLURM_STEP_ID", "0"},
                                                     {"SLURM_STEP_NODELIST", "n[1-2]"},
                                                     {"SLURM_STEP_NUM_NODES", "2"},
                                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                                     {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                                     {"SLURM_TASK_PID", "273"}});

// sbatch -w n[1-2] that was called in a step on n3: that step's variables are still there.
const Environment kBatchFromStep = with(kBatchScript, {{"SLURM_NPROCS", "1"},
                                                       {"SLURM_NTASKS", "1"},
                                                       {"SLURM_SRUN_COMM_HOST", "127.0.0.1"},
                                                       {"SLURM_STEPID", "0"},
                                                       {"SLURM_STEP_ID", "0"},
                                                       {"SLURM_STEP_NODELIST", "n3"},
                                                       {"SLURM_STEP_NUM_NODES", "1"},
                                                       {"SLURM_STEP_NUM_TASKS", "1"},
                                                       {"SLURM_STEP_TASKS_PER_NODE", "1"}});

// srun --overlap -N1 --pty bash in a job of two nodes: SLURM_NNODES and SLURM_TASKS_PER_NODE are the step's.
const Environment kShellInJob = with(kSalloc, {{"SLURMD_NODENAME", "n1"},
                                               {"SLURM_GPUS_ON_NODE", "2"},
                                               {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_NNODES", "1"},
                                               {"SLURM_NODEID", "0"},
                                               {"SLURM_NTASKS", "1"},
                                               {"SLURM_PROCID", "0"},
                                               {"SLURM_PTY_PORT", "42217"},
                                               {"SLURM_STEP_ID", "2"},
                                               {"SLURM_STEP_NODELIST", "n1"},
                                               {"SLURM_STEP_NUM_NODES", "1"},
                                               {"SLURM_STEP_NUM_TASKS", "1"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                               {"SLURM_TASKS_PER_NODE", "1"}});

}  // namespace

TEST_CASE("node lists expand in order, leftmost bracket slowest", "[hostfile][slurm]") {
  auto expand = [](std::string_view list) { return expand_nodelist(list, "L"); };
  CHECK(expand("foo[8-11]") == Names{"foo8", "foo9", "foo10", "foo11"});
  CHECK(expand("n[01-03,7]") == Names{"n01", "n02", "n03", "n7"});
  CHECK(expand("r[1-2]-n[1-2]") == Names{"r1-n1", "r1-n2", "r2-n1", "r2-n2"});
  CHECK(expand("login,gpu[3,1],gpu[1]") == Names{"login", "gpu3", "gpu1", "gpu1"});
  CHECK(expand("ip-10-0-[1-2]-5,p4d[098-101]x") ==
        Names{"ip-10-0-1-5", "ip-10-0-2-5", "p4d098x", "p4d099x", "p4d100x", "p4d101x"});
}

TEST_CASE("a node list that does not parse is refused with its column", "[hostfile][slurm]") {
  auto refused = [](std::string_view list) { return refusal_of([&] { expand_nodelist(list, "SLURM_JOB_NODELIST"); }); };
  CHECK_THAT(refused("a,n[1-"), Contains("SLURM_JOB_NODELIST='a,n[1-'") && Contains("column 4") && Contains("never"));
  CHECK_THAT(refused("a,,b"), Contains("column 3: '' is not a node name"));
  CHECK_THAT(refused("a,b]"), Contains("column 4: ']' without"));
  CHECK_THAT(refused("(null)"), Contains("column 1"));
  CHECK_THAT(refused("-oX"), Contains("not a node name"));
  CHECK_THAT(refused("a[1-60000],b[1-60000]"), Contains("more than 65536"));
}

TEST_CASE("repeat counts expand", "[hostfile][slurm]") {
  auto expand = [](std::string_view list) { return expand_repeats(list, "T"); };
  CHECK(expand("2(x3),1") == Counts{2, 2, 2, 1});
  CHECK(expand("4") == Counts{4});
  CHECK(expand("1,8(x1),0(x2)") == Counts{1, 8, 0, 0});
  auto refused = [](std::string_view list) { return refusal_of([&] { expand_repeats(list, "T"); }); };
  CHECK_THAT(refused("2(x3"), Contains("T='2(x3'") && Contains("column 1"));
  CHECK_THAT(refused("1,2(x0)"), Contains("column 3"));
  CHECK_THAT(refused("1,"), Contains("column 3"));
  CHECK_THAT(refused("x"), Contains("neither COUNT nor"));
  CHECK_THAT(refused("1(x99999999)"), Contains("more than 65536"));
  CHECK_THAT(refused("1(x99999999999999)"), Contains("neither COUNT nor"));
}

TEST_CASE("GPU requests and device lists are counted in all their forms", "[hostfile][slurm]") {
  auto count = [](std::string_view request) { return count_gres(request, "G"); };
  CHECK(count("8") == 8);
  CHECK(count("gpu:8") == 8);
  CHECK(count("gpu:a100:8") == 8);
  CHECK(count("a100:4") == 4);
  CHECK(count("a100:2,v100:1") == 3);
  CHECK(count("gres/gpu:h100:8") == 8);
  CHECK(count("gpu:a100:4(S:0-1)") == 4);
  CHECK(count("gpu") == 1);
  CHECK(count("0") == 0);
  for (std::string_view bad : {"", "8,", "gpu:", "gpu:8x", "gpu:999999", "4000,4000", ":"}) {
    INFO(bad);
    CHECK_THAT(refusal_of([&] { count_gres(bad, "G"); }), Contains("G='"));
  }
  CHECK(count_device_list("0-3,5") == 5);
  CHECK(count_device_list("7") == 1);
  CHECK(count_device_list("0,1,2,3") == 4);
  CHECK(count_device_list("") == 0);
  CHECK(count_device_list("NoDevFiles") == 0);
  CHECK(count_device_list("GPU-8a1e,GPU-77bc") == 2);
}

TEST_CASE("outside of Slurm there is nothing to read", "[hostfile][slurm]") {
  CHECK(read_slurm({}).kind == SlurmKind::kNone);
  CHECK(read_slurm({{"SLURM_CONF", "/etc/slurm.conf"}, {"SLURM_JOB_ID", ""}}).kind == SlurmKind::kNone);
}

TEST_CASE("a shell of salloc is an allocation", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kSalloc);
  CHECK(situation.kind == SlurmKind::kAllocation);
  CHECK(situation.allocation.source == "slurm job 1");
  CHECK(situation.num_nodes == 2);
  CHECK(situation.first_node == "n1");
  CHECK(text(situation) == "n1*1 n2*1");
  // --gres shows in no variable of the shell, so one slot is a lower bound.
  CHECK(situation.slots_open);
  CHECK_FALSE(situation.slots_are_gpus);

  situation = read_slurm(with(kSalloc, {{"SLURM_GPUS_PER_NODE", "a100:4"}}));
  CHECK(text(situation) == "n1*4 n2*4");
  CHECK(situation.slots_are_gpus);
  CHECK(situation.slots_source == "SLURM_GPUS_PER_NODE");
  CHECK(text(read_slurm(with(kSalloc, {{"SLURM_GPUS", "6"}}))) == "n1*3 n2*3");
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_GPUS", "5"}})), Contains("SLURM_GPUS=5") && Contains("unevenly"));
}

TEST_CASE("a batch script is an allocation though it has a task's variables", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kBatchScript);
  CHECK(situation.kind == SlurmKind::kAllocation);
  CHECK(situation.job_id == "6");
  CHECK(text(situation) == "n1*4 n2*4");
  CHECK(situation.slots_source == "SLURM_GPUS_ON_NODE");
  CHECK(situation.restart_count == 0);
  CHECK(read_slurm(with(kBatchScript, {{"SLURM_RESTART_COUNT", "3"}})).restart_count == 3);
}

TEST_CASE("a batch script that was submitted from inside a step is still an allocation", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kBatchFromStep);
  CHECK(situation.kind == SlurmKind::kAllocation);
  CHECK(text(situation) == "n1*4 n2*4");
  // Even where that step ran on a node of this job.
  CHECK(read_slurm(with(kBatchFromStep, {{"SLURM_STEP_NODELIST", "n1"}})).kind == SlurmKind::kAllocation);
}

TEST_CASE("a process started by srun on each node is a task with its rank", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kTaskInBatch);
  CHECK(situation.kind == SlurmKind::kTask);
  CHECK(situation.node_rank == 1);
  CHECK(situation.num_nodes == 2);
  CHECK(situation.first_node == "n1");
  CHECK(situation.step_id == "0");
  CHECK(text(situation) == "n1*4 n2*4");
  CHECK(situation.rendezvous_port == 22799);  // an agreement between versions: FNV-1a of "6.0"

  SlurmSituation first = read_slurm(with(
      kTaskInBatch, {{"SLURMD_NODENAME", "n1"}, {"SLURM_NODEID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_GTIDS", "0"}}));
  CHECK(first.kind == SlurmKind::kTask);
  CHECK(first.node_rank == 0);
  CHECK(first.rendezvous_port == situation.rendezvous_port);
  CHECK(read_slurm(with(kTaskInBatch, {{"SLURM_STEP_ID", "1"}})).rendezvous_port != situation.rendezvous_port);
}

TEST_CASE("the step's variables win over the job's", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(with(kTaskInBatch, {{"SLURM_JOB_NODELIST", "n[1-4]"},
                                                            {"SLURM_JOB_NUM_NODES", "4"},
                                                            {"SLURM_STEP_NODELIST", "n[2-3]"},
                                                            {"SLURM_NODEID", "0"},
                                                            {"SLURM_TASKS_PER_NODE", "3(x4)"},
                                                            {"SLURM_GPUS", "32"}}));
  CHECK(situation.kind == SlurmKind::kTask);
  CHECK(text(situation) == "n2*4 n3*4");
  CHECK(situation.node_rank == 0);
}

TEST_CASE("an interactive srun shell counts as an allocation", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kShellInJob);
  CHECK(situation.kind == SlurmKind::kAllocation);
  CHECK(text(situation) == "n1*2 n2*2");
  // The interactive step of salloc has a number that no step of srun has.
  Environment interactive = with(kShellInJob, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEPID", "4294967290"}});
  interactive.erase("SLURM_PTY_PORT");
  interactive["SLURM_TASKS_PER_NODE"] = "1(x2)";
  CHECK(read_slurm(interactive).kind == SlurmKind::kAllocation);
  // Many tasks under a terminal are tasks.
  CHECK(read_slurm(with(kTaskInBatch, {{"SLURM_PTY_PORT", "1"}})).kind == SlurmKind::kTask);
}

TEST_CASE("slots come from GPUs, or from tasks if there are no GPUs", "[hostfile][slurm]") {
  CHECK(text(read_slurm(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "4,2"}}))) == "n1*4 n2*2");
  CHECK_FALSE(read_slurm(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "4,2"}})).slots_open);
  CHECK(text(read_slurm(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "4,2"}, {"SLURM_GPUS_PER_NODE", "8"}}))) ==
        "n1*8 n2*8");
  CHECK(text(read_slurm(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "4,2"}, {"SLURM_GPUS_PER_TASK", "gpu:2"}}))) ==
        "n1*8 n2*4");
  CHECK(text(read_slurm(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "2(x2)"}, {"SLURM_GPUS_PER_TASK", "2"}}))) ==
        "n1*4 n2*4");
  Environment step_list = with(kTaskInBatch, {{"SLURM_STEP_GPUS", "0-3,5"}, {"SLURM_JOB_GPUS", "0-7"}});
  step_list.erase("SLURM_GPUS_ON_NODE");
  CHECK(text(read_slurm(step_list)) == "n1*5 n2*5");
  Environment job_list = with(kBatchScript, {{"SLURM_JOB_GPUS", "0,1"}});
  job_list.erase("SLURM_GPUS_ON_NODE");
  CHECK(text(read_slurm(job_list)) == "n1*2 n2*2");
  CHECK(text(read_slurm(with(kBatchScript, {{"SLURM_GPUS_ON_NODE", "0"}}))) == "n1*1 n2*1");
}

TEST_CASE("an overflowing product of counts is refused", "[hostfile][slurm]") {
  for (const char* tasks : {"1048576,1", "1048576(x2)"}) {
    CHECK_THAT(refusal(with(kSalloc, {{"SLURM_TASKS_PER_NODE", tasks}, {"SLURM_GPUS_PER_TASK", "4096"}})),
               Contains("node n1 of SLURM_JOB_NODELIST would have 2147483647 slots"));
  }
}

TEST_CASE("contradicting counts are refused with both values", "[hostfile][slurm]") {
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_JOB_NODELIST", "n1"}})),
             Contains("SLURM_JOB_NODELIST names 1 node but SLURM_JOB_NUM_NODES=2"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_JOB_NODELIST", "n[1-3]"}})), Contains("names 3 nodes"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_JOB_NODELIST", "n1,n1"}})), Contains("names node 'n1' twice"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "1(x3)"}})),
             Contains("SLURM_TASKS_PER_NODE='1(x3)' counts tasks for 3 nodes") && Contains("names 2"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_JOB_NUM_NODES", "two"}})), Contains("SLURM_JOB_NUM_NODES='two'"));
  CHECK_THAT(refusal(with(kTaskInBatch, {{"SLURM_STEP_NUM_NODES", "3"}})),
             Contains("SLURM_STEP_NODELIST names 2 nodes but SLURM_STEP_NUM_NODES=3"));
  CHECK_THAT(refusal(with(kTaskInBatch, {{"SLURM_JOB_NUM_NODES", "3"}})), Contains("SLURM_JOB_NUM_NODES=3"));
  CHECK_THAT(refusal(with(kTaskInBatch, {{"SLURM_NODEID", "2"}})), Contains("SLURM_NODEID=2 does not fit the 2 nodes"));
  CHECK_THAT(refusal(with(kTaskInBatch, {{"SLURM_NODEID", "0"}})),
             Contains("SLURMD_NODENAME=n2 but SLURM_NODEID=0 is node n1"));
  CHECK_THAT(refusal(with(kBatchScript, {{"SLURM_GPUS", "6"}})),
             Contains("SLURM_GPUS=6 but SLURM_GPUS_ON_NODE=4 on 2 nodes makes 8"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_TASKS_PER_NODE", "1,0"}})), Contains("node n2"));
  CHECK_THAT(refusal(with(kSalloc, {{"SLURM_HET_SIZE", "2"}})), Contains("heterogeneous"));
}

TEST_CASE("several tasks per node are refused with advice", "[hostfile][slurm]") {
  std::string message = refusal(with(kTaskInBatch, {{"SLURM_STEP_TASKS_PER_NODE", "1,4"}}));
  CHECK_THAT(message, Contains("4 times on node n2") && Contains("--ntasks-per-node=1"));
}

TEST_CASE("a task is known by its rank where a step's variables are missing", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm({{"SLURM_JOB_ID", "9"},
                                         {"SLURM_JOB_NODELIST", "gpu[1-2]"},
                                         {"SLURM_JOB_NUM_NODES", "2"},
                                         {"SLURM_NTASKS", "2"},
                                         {"SLURM_PROCID", "1"},
                                         {"SLURM_NODEID", "1"},
                                         {"SLURM_TASKS_PER_NODE", "1(x2)"},
                                         {"SLURM_GPUS_ON_NODE", "8"}});
  CHECK(situation.kind == SlurmKind::kTask);
  CHECK(situation.node_rank == 1);
  CHECK(text(situation) == "gpu1*8 gpu2*8");
}

TEST_CASE("the nodes' answers replace missing variables", "[hostfile][slurm]") {
  SlurmSituation situation = read_slurm(kSalloc);
  for (std::string_view incomplete : {"", "n1 8\n", "n1 8\nn2 0\n", "n1 8\nn2\n", "n1 8\nn2 x\n", "\n\n"}) {
    learn_gpus(situation, incomplete);
    CHECK(text(situation) == "n1*1 n2*1");
    CHECK(situation.slots_open);
  }
  learn_gpus(situation, "n2 4\nn1 8");
  CHECK(text(situation) == "n1*8 n2*4");
  CHECK(situation.slots_are_gpus);
  CHECK_FALSE(situation.slots_open);
  CHECK(describe(situation) == "slurm job 1: 2 nodes, slots from SLURM_GPUS_ON_NODE of each node");
}
