// What dslaunch's command line refuses: the words as a user types them, and the whole answer. Each goes through
// dispatch(), which main() calls.
#include <catch2/catch.hpp>
#include <filesystem>

#include "apps/launcher/commands.hpp"
#include "apps/launcher/options.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using test::message_of;

namespace {

struct Slip {
  std::vector<std::string> words;
  std::string answer;
};

const std::vector<Slip>& slips() {
  static const std::vector<Slip> all{
      {{"train.py"}, "train.py is a Python program, not a model: did you mean 'dslaunch exec -- python train.py'?"},
      {{"--num_gpus", "2", "train.py", "--lr-decay", "1e-4"},
       "train.py is a Python program, not a model: did you mean 'dslaunch exec --num_gpus 2 -- python train.py "
       "--lr-decay 1e-4'?"},
      {{"train.py", "an arg"},
       "train.py is a Python program, not a model: did you mean 'dslaunch exec -- python train.py 'an arg''?"},
      {{"--config=ds.json", "--num_gpus", "2", "train.py", "--data", "x"},
       "train.py is a Python program, not a model: did you mean 'dslaunch exec --num_gpus 2 -- python train.py --data "
       "x'? Left out: --config (a program takes it behind its name)"},
      {{"run", "go.sh", "--steps", "many", "--", "x"},
       "go.sh is a script, not a model: did you mean 'dslaunch exec -- sh go.sh --steps many x'?"},
      // The words behind a program are its own: none is renamed, left out, or taken for an option of ours.
      {{"--num_gpus=4", "zero_args.py", "--deepspeed_config=F"},
       "zero_args.py is a Python program, not a model: did you mean 'dslaunch exec --num_gpus=4 -- python zero_args.py "
       "--deepspeed_config=F'?"},
      {{"run_translation.py", "--deepspeed", "ds.json", "--local_rank", "0"},
       "run_translation.py is a Python program, not a model: did you mean 'dslaunch exec -- python run_translation.py "
       "--deepspeed ds.json --local_rank 0'?"},
      {{"--deepspeed_config", "F", "zero_args.py", "--num_gpus"},
       "zero_args.py is a Python program, not a model: did you mean 'dslaunch exec -- python zero_args.py "
       "--num_gpus'? Left out: --deepspeed_config (a program takes it behind its name)"},
      {{"train.py", "--help"},
       "train.py is a Python program, not a model: did you mean 'dslaunch exec -- python train.py --help'?"},
      {{"--num-gpus", "2", "train.py", "--version"},
       "train.py is a Python program, not a model: did you mean 'dslaunch exec --num-gpus 2 -- python train.py "
       "--version'?"},
      {{"--nnode=2", "train.py"}, "unknown option --nnode (did you mean '--nnodes'?); see 'dslaunch --help'"},
      {{"infer", "--prompt", "To be"}, "which model? dslaunch infer MODEL.pt|CKPT --prompt TEXT"},
      {{"infer", "runs/a"}, "continue which text? --prompt TEXT, --prompts FILE, --messages FILE or --ids 1,2,3"},
      {{"infer", "runs/a", "--prompt", "a", "--greedy", "--top_k", "3"},
       "--greedy draws no tokens: it goes without --temperature, --top_k, --top_p and --min_p"},
      {{"infer", "runs/a", "--prompt", "a", "--num_beams", "2", "--stop", "b"},
       "--num_beams goes with --stop_ids, not with --stop"},
      {{"infer", "runs/a", "--prompt", "a", "--length_penalty", "2"},
       "--length_penalty and --early_stopping go with --num_beams above 1"},
      {{"infer", "runs/a", "--prompt", "a", "--dtype", "int8"},
       "--dtype: 'int8' is none of fp32, bf16, fp16; see 'dslaunch infer --help'"},
      {{"infer", "runs/a", "--prompt", "a", "--weight_dtype", "bf16"},
       "--weight_dtype: 'bf16' is none of int8, fp8, int4; see 'dslaunch infer --help'"},
      {{"infer", "runs/a", "--prompt", "a", "--weight_dtype", "int8", "--nvme_path", "d"},
       "--weight_dtype goes without --nvme_path, whose parameters stay in the file"},
      {{"infer", "runs/a", "--data", "x.npz", "--outputs", "o", "--weight_dtype", "int8"},
       "--weight_dtype goes with texts and --score, not with --outputs, which runs forward as the file has it"},
      {{"infer", "runs/a", "--score", "--prompt", "a", "--compare_weights"},
       "--compare_weights goes with --score and --weight_dtype"},
      {{"infer", "runs/a", "--prompt", "a", "--profile", "--device", "cpu"},
       "--profile shows the kernels of texts that a GPU writes: it goes with a prompt, without --score and --device "
       "cpu"},
      {{"infer", "runs/a", "--prompt", "a", "--outputs", "o"},
       "--outputs goes with --data, whose samples forward runs on"},
      {{"infer", "runs/a", "--data", "x.npz"}, "--data needs --outputs FILE for what forward returns, or --score"},
      {{"infer", "--checkpoint", "c", "--prompt", "To", "be"}, "unexpected argument 'be'; see 'dslaunch infer --help'"},
      {{"serve", "--port", "0"}, "which model? dslaunch serve MODEL.pt|CKPT"},
      {{"serve", "a", "--token", "b", "--token_file", "c"}, "--token and --token_file exclude each other"},
      {{"serve", "a", "--port", "70000"}, "--port 70000: ports are at most 65535"},
      {{"serve", "a", "--max_body", "5"},
       "--max_body: '5': expected a size with a unit, as 4GiB; see 'dslaunch serve --help'"},
      {{"serve", "a", "--drain_timeout", "soon"},
       "--drain_timeout: 'soon': expected a duration, as 30s or 5m; see 'dslaunch serve --help'"},
      {{"bench"},
       "bench what? dslaunch bench io [--dir DIR]: reads and writes of files; dslaunch bench adam: updates on the CPU; "
       "dslaunch bench step MODEL.pt: training steps of a model"},
      {{"bench", "--dir", "d"},
       "bench what? dslaunch bench io [--dir DIR]: reads and writes of files; dslaunch bench adam: updates on the CPU; "
       "dslaunch bench step MODEL.pt: training steps of a model"},
      {{"bench", "comm"}, "bench comm is not supported yet"},
      {{"bench", "disk"}, "bench disk: expected io, adam or step"},
      {{"bench", "adam", "--dir", "d"}, "--dir belongs to 'dslaunch bench io', not to 'bench adam'"},
      {{"bench", "io", "--params", "1e8"}, "--params belongs to 'dslaunch bench adam', not to 'bench io'"},
      {{"bench", "adam", "--params", "10"}, "--params 10: expected 1e6 to 1e12"},
      {{"bench", "io", "/scratch"}, "unexpected argument '/scratch'; see 'dslaunch bench --help'"},
      {{"bench", "io", "--dir", ""},
       "--dir: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch bench --help'"},
      {{"bench", "io", "--dri", "d"}, "unknown option --dri (did you mean '--dir'?); see 'dslaunch bench --help'"},
      {{"bench", "io", "--seconds", "0"}, "--seconds 0: expected 1 to 3600"},
      {{"bench", "io", "--seconds", "3601"}, "--seconds 3601: expected 1 to 3600"},
      {{"bench", "io", "--seconds", "long"}, "--seconds: 'long' is not a whole number; see 'dslaunch bench --help'"},
      {{"bench", "step"}, "bench step which model? dslaunch bench step MODEL.pt [--config FILE]"},
      {{"bench", "step", "m.pt", "--seconds", "3"}, "--seconds belongs to 'dslaunch bench io', not to 'bench step'"},
      {{"bench", "adam", "--config", "c"}, "--config belongs to 'dslaunch bench step', not to 'bench adam'"},
      {{"bench", "step", "m.pt", "--against", "jax"}, "--against jax: expected torch"},
      {{"bench", "step", "m.pt", "--device", "tpu"}, "--device tpu: expected auto, cpu or cuda"},
      {{"bench", "step", "m.pt", "--set", "x"},
       "--set 'x' is not KEY=VALUE; for example --set zero_optimization.stage=1"},
      {{"bench", "step", "m.pt", "--steps", "0"},
       "--steps: 0 is too small; the minimum is 1; see 'dslaunch bench --help'"},
      {{"bench", "step", "m.pt", "n.pt"}, "unexpected argument 'n.pt'; see 'dslaunch bench --help'"},
      {{"bench", "io", "--", "x"}, "'--' belongs to 'dslaunch exec', not to 'bench'"},
      {{"plan"},
       "plan what? dslaunch plan MODEL.pt [--config FILE], --largest, --params N --largest_layer N, or --schedule P,M"},
      {{"plan", "m.pt", "--kind", "gpipe"}, "--kind belongs to 'dslaunch plan --schedule P,M'"},
      {{"plan", "m.pt", "--gpu_memory", "80"}, "--gpu_memory 80: expected a size with a unit, as 80GiB, 80G or 85GB"},
      {{"plan", "--largest", "--host_memory", "-1T"},
       "--host_memory -1T: expected a size with a unit, as 80GiB, 80G or 85GB"},
      {{"plan", "m.pt", "--device", "tpu"}, "--device tpu: expected auto, cpu or cuda"},
      {{"plan", "m.pt", "--set", "x"}, "--set 'x' is not KEY=VALUE; for example --set zero_optimization.stage=1"},
      {{"plan", "m.pt", "--num_gpus", "0"}, "--num_gpus: 0 is too small; the minimum is 1; see 'dslaunch plan --help'"},
      {{"plan", "--largest", "m.pt"}, "'m.pt' belongs to 'dslaunch plan MODEL.pt'"},
      {{"plan", "m.pt", "--measure", "--activations", "1G"}, "--measure and --activations exclude each other"},
      {{"config", "check", "ds.json", "--num_gpus", "2", "--world_size", "2"},
       "--world_size and --num_gpus exclude each other"},
      {{"config", "check", "ds.json", "--num_gpus", "2000000000", "--num_nodes", "2000000000"},
       "4000000000000000000 ranks are too many"},
      {{"plan", "m.pt", "--suggest"}, "--suggest needs a value: FILE.json; see 'dslaunch plan --help'"},
      {{"plan", "m.pt", "--suggest", "A100"},
       "--suggest A100: expected the file to write the config to, as fast.json; what GPUs have is given with "
       "--gpu_memory and --tflops"},
      {{"plan", "--largest", "--suggest", "x.json"}, "--suggest belongs to 'dslaunch plan MODEL.pt'"},
      {{"plan", "m.pt", "--link_bandwidth", "50"},
       "--link_bandwidth 50: expected a size with a unit, as 80GiB, 80G or 85GB"},
      {{"plan", "--largest", "--measure"}, "--measure belongs to 'dslaunch plan MODEL.pt'"},
      {{"plan", "--params", "1M", "--gpu_memory", "80G"},
       "--gpu_memory belongs to 'dslaunch plan MODEL.pt' and 'dslaunch plan --largest'"},
      {{"plan", "--params", "seven"},
       "--params seven: expected a number of parameters up to 1e15, as 2783959040, 2.7e9 or 7B"},
      {{"plan", "--params", "0"}, "--params 0: expected a number of parameters up to 1e15, as 2783959040, 2.7e9 or 7B"},
      {{"plan", "--params", "1M", "--largest_layer", "2M"},
       "--largest_layer 2M is more than --params 1M, which counts the whole model"},
      {{"plan", "--params", "1M", "--schedule", "4,8"}, "--params belongs to 'dslaunch plan --params N'"},
      {{"plan", "--params", "1M", "--kind", "1f1b"}, "--kind belongs to 'dslaunch plan --schedule P,M'"},
      {{"plan", "--schedule", "4"},
       "--schedule 4: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", "0,8"},
       "--schedule 0,8: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", "4,1025"},
       "--schedule 4,1025: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", "4,8,2"},
       "--schedule 4,8,2: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", "four,8"},
       "--schedule four,8: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", "4,"},
       "--schedule 4,: write P,M: 1 to 128 pipeline stages and 1 to 1024 micro batches, as 4,8"},
      {{"plan", "--schedule", ""},
       "--schedule: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch plan --help'"},
      {{"plan", "--schedule", "4,8", "--kind", "interleaved"}, "--kind interleaved: expected 1f1b, gpipe or zb-h1"},
      {{"plan", "--schedule", "4,8", "--times", "1,2"},
       "--times 1,2: write F,I,W: the time slots, 1 to 9, of a forward, an input gradient and a weight gradient, as "
       "1,1,1"},
      {{"plan", "--schedule", "4,8", "--times", "1,0,1"},
       "--times 1,0,1: write F,I,W: the time slots, 1 to 9, of a forward, an input gradient and a weight gradient, as "
       "1,1,1"},
      {{"plan", "--schedule", "4,8", "m.pt"}, "'m.pt' belongs to 'dslaunch plan MODEL.pt'"},
      {{"plan", "m.pt", "n.pt"}, "unexpected argument 'n.pt'; see 'dslaunch plan --help'"},
      {{"plan", "--schedul", "4,8"},
       "unknown option --schedul (did you mean '--schedule'?); see 'dslaunch plan --help'"},
      {{"plan", "--schedule", "4,8", "--", "x"}, "'--' belongs to 'dslaunch exec', not to 'plan'"},
      {{"--num_gpu", "2", "m.pt"}, "unknown option --num_gpu (did you mean '--num_gpus'?); see 'dslaunch --help'"},
      {{"--rdzv-endpoint=a:1", "m.pt"},
       "--rdzv_endpoint of torchrun is called --master_addr A --master_port P in dslaunch; see 'dslaunch --help'"},
      {{"hsots"}, "unknown command 'hsots' (did you mean 'hosts'?); see 'dslaunch --help'"},
      {{"--verify", "0", "m.pt"}, "--verify 0: expected at least 1"},
      {{"--verify", "-3", "m.pt"}, "--verify -3: expected at least 1"},
      {{"--verify", "many", "m.pt"}, "--verify: 'many' is not a whole number; see 'dslaunch --help'"},
      {{"--verify", "", "m.pt"}, "--verify: needs a number; see 'dslaunch --help'"},
      {{"--verify", "3", "--eval_only", "m.pt"}, "--verify compares training steps, and --eval_only takes none"},
      {{"--eval_only", "--overwrite", "m.pt"},
       "--eval_only adds to a run directory; --overwrite would discard the run that it holds"},
      {{"--eval_only", "--trace", "1", "m.pt"}, "--trace shows a training step, and --eval_only takes none"},
      {{"--trace", "0", "m.pt"}, "--trace 0: expected at least 1"},
      {{"--trace", "three", "m.pt"}, "--trace: 'three' is not a whole number; see 'dslaunch --help'"},
      {{"--stages", "0", "m.pt"}, "--stages 0: expected at least 1"},
      {{"--stages", "two", "m.pt"}, "--stages: 'two' is not a whole number; see 'dslaunch --help'"},
      {{"exec", "--stages", "2", "--", "x"},
       "--stages cuts the model of 'dslaunch run' into pipeline stages; exec starts any program as it is"},
      {{"--tp", "0", "m.pt"}, "--tp 0: expected at least 1"},
      {{"--tp", "half", "m.pt"}, "--tp: 'half' is not a whole number; see 'dslaunch --help'"},
      {{"exec", "--tp", "2", "--", "x"},
       "--tp splits the layers of the model of 'dslaunch run'; exec starts any program as it is"},
      {{"--tensor-model-parallel-size", "2", "m.pt"}, "--tensor_model_parallel_size is --tp 2 here"},
      {{"--config", "ds.json"},
       "MODEL.pt is missing: dslaunch [options] MODEL.pt [--config FILE]; see 'dslaunch --help'"},
      {{"m.pt", "n.pt"}, "unexpected argument 'n.pt'; see 'dslaunch --help'"},
      {{"lauch", "m.pt"}, "unknown command 'lauch' (did you mean 'launch'?); see 'dslaunch --help'"},
      {{"m.pt", "run"}, "'run' is a command, which comes first: did you mean 'dslaunch run m.pt'?"},
      {{"--steps", "3", "m.pt", "plan"},
       "'plan' is a command, which comes first: did you mean 'dslaunch plan --steps 3 m.pt'?"},
      {{"go", "m.pt"}, "'go' is neither a command nor a file: did you mean 'dslaunch m.pt'? See 'dslaunch --help'"},
      {{"m.pt", "ds.json"},
       "ds.json is a second file without an option: did you mean 'dslaunch m.pt --config ds.json'?"},
      {{"ds.yaml", "m.pt", "--steps", "3"},
       "ds.yaml is a second file without an option: did you mean 'dslaunch m.pt --steps 3 --config ds.yaml'?"},
      {{"m.pt", "a b.npy"},
       "'a b.npy' is a second file without an option: did you mean 'dslaunch m.pt --data 'a b.npy''?"},
      {{"--steps", "many", "m.pt"}, "--steps: 'many' is not a whole number; see 'dslaunch --help'"},
      {{"--steps", "1e3", "m.pt"}, "--steps: '1e3' is not a whole number; see 'dslaunch --help'"},
      {{"--steps", "99999999999999999999", "m.pt"},
       "--steps: '99999999999999999999' is not between -9223372036854775808 and 9223372036854775807; see "
       "'dslaunch --help'"},
      {{"exec", "--master_port", "65536", "--", "x"},
       "--master_port: '65536' is not between 0 and 65535; see 'dslaunch exec --help'"},
      {{"exec", "--master_port", "", "--", "x"}, "--master_port: needs a number; see 'dslaunch exec --help'"},
      {{"--seed", "-1", "m.pt"}, "--seed -1: expected at least 0"},
      {{"--seed", "18446744073709551615", "m.pt"},
       "--seed: '18446744073709551615' is not between -9223372036854775808 and 9223372036854775807; see 'dslaunch "
       "--help'"},
      {{"exec", "--hostfile", "", "--", "true"},
       "--hostfile: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch exec --help'"},
      {{"exec", "--hostfile=", "--", "true"},
       "--hostfile: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch exec --help'"},
      {{"--resume", "", "m.pt"},
       "--resume: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch --help'"},
      {{"--run_dir=", "m.pt"},
       "--run_dir: the value is empty (is a shell variable not set?); omit the option; see 'dslaunch --help'"},
      {{"exec", "--num_gpus", "1", "--num_gpus", "2", "--", "x"},
       "--num_gpus is given more than once; see 'dslaunch exec --help'"},
      {{"exec", "--num_gpus", "--", "x"}, "--num_gpus needs a value: N; see 'dslaunch exec --help'"},
      {{"--device", "tpu", "m.pt"}, "--device tpu: expected auto, cpu or cuda"},
      {{"exec", "--timeout", "soon", "--", "true"},
       "--timeout: 'soon' is not a duration; write 90, 90s, 10m, 2h or 500ms, up to 10000d"},
      {{"exec", "--timeout", "10001d", "--", "true"},
       "--timeout: '10001d' is not a duration; write 90, 90s, 10m, 2h or 500ms, up to 10000d"},
      {{"exec", "--timeout", "110000d", "--", "true"},
       "--timeout: '110000d' is not a duration; write 90, 90s, 10m, 2h or 500ms, up to 10000d"},
      {{"exec", "--connect_timeout", "0", "--", "true"}, "--connect_timeout 0: expected at least 1ms"},
      {{"exec", "--lost_after", "999ms", "--", "true"}, "--lost_after 999ms: expected at least 1s"},
      {{"m.pt", "--", "x"}, "a model takes no arguments: '-- x' belongs to 'dslaunch exec'"},
      {{"exec", "python", "x.py"}, "put '--' before the program: did you mean 'dslaunch exec -- python x.py'?"},
      {{"exec", "--"}, "the program is missing: dslaunch exec [options] -- PROGRAM [ARGUMENTS...]"},
      {{"exec", "--env", "A", "--", "true"}, "--env A: write NAME=VALUE"},
      {{"exec", "--env", "A B=1", "--", "true"}, "--env A B=1: 'A B' is not a variable name"},
      {{"m.pt", "--resume", "auto", "--overwrite"}, "--resume and --overwrite exclude each other"},
      {{"config"}, "dslaunch config check FILE, or dslaunch config explain FILE"},
      {{"config", "check"}, "which file? dslaunch config check FILE"},
      {{"m.pt", "--resume", "auto", "--eval_only"},
       "--eval_only --resume auto needs --run_dir: which run should be evaluated?"},
      {{"exec", "--overwrite", "--", "true"}, "--overwrite replaces the logs in --run_dir D: add --run_dir"},
      {{"exec", "--device", "cpu", "--no_ssh", "--num_nodes", "2", "--master_addr", "a", "--", "true"},
       "--no_ssh needs --node_rank K: dslaunch is started by hand on every node, and K is the rank of this node "
       "(0, 1, ...)"},
      {{"exec", "--device", "cpu", "--no_ssh", "--node_rank", "0", "--", "true"},
       "--no_ssh needs --num_nodes N or --hostfile F: how many nodes are there?"},
      {{"exec", "--device", "cpu", "--node_rank", "1", "--", "true"},
       "--node_rank 1 belongs to --no_ssh, where dslaunch is started by hand on every node; without it the order "
       "of the hosts determines the ranks"},
      {{"exec", "--device", "cpu", "--tee", "4", "--", "true"},
       "--tee 4: '4' is invalid; write 0 (none), 1 (standard output), 2 (standard error) or 3 (both), or "
       "LOCAL_RANK:VALUE,... as in 0:3,12:1"},
      {{"doctor", "--port", "0"}, "--port 0: expected a number from 1 to 65535"},
      {{"doctor", "--port", "65536"}, "--port 65536: expected a number from 1 to 65535"},
      {{"doctor", "--port", "x"}, "--port x: expected a number from 1 to 65535"},
      {{"doctor", "--yes"}, "--yes confirms --kill: give both"},
      {{"doctor", "--force"}, "--force extends --kill: give both"},
      {{"doctor", "--only", "3"}, "--only 3: write PID:START, as the JSON report has them"},
      {{"doctor", "stray"}, "unexpected argument 'stray'; see 'dslaunch doctor --help'"},
      {{"doctor", "--", "true"}, "unexpected argument after '--'; see 'dslaunch doctor --help'"},
      {{"stacks", "j", "--rank", "1-0"}, "--rank 1-0: expected numbers of ranks, ascending, as 3 or 0,4-7"},
      {{"m.pt", "--name", "a b"},
       "--name a b: expected up to 64 letters, digits, '.', '_' and '-', of which the first is a letter or a digit"},
      {{"exec", "--name", "last", "--", "x"}, "--name last: the commands on jobs take this word for another job"},
      {{"resume", "last", "--", "x"}, "'--' belongs to 'dslaunch exec', not to 'resume'"},
      {{"logs"}, "which job? dslaunch logs JOB; 'last' is the newest job"},
      {{"logs", "j", "--rank", "-1"}, "--rank -1: 0 or more"},
      {{"attach"}, "which job? dslaunch attach JOB; 'last' is the newest job"},
      {{"stop"}, "which job? dslaunch stop JOB...; 'last' is the newest job"},
      {{"stop", "j", "--now", "--grace", "3s"}, "--now and --grace exclude each other"},
      {{"jobs", "--all", "j"}, "--all applies to the list of jobs, not to single jobs"},
      {{"consolidate", "c"}, "dslaunch consolidate CKPT OUT: both are needed (or --hf OUT_DIR in place of OUT)"},
      {{"import"}, "dslaunch import DS_CHECKPOINT_DIR OUT: both are needed"},
      {{"import", "a"}, "dslaunch import DS_CHECKPOINT_DIR OUT: both are needed"},
      {{"import", "a", "b", "--tga", "x"},
       "unknown option --tga (did you mean '--tag'?); see 'dslaunch import --help'"},
  };
  return all;
}

class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

}  // namespace

TEST_CASE("dslaunch answers a slip in its command line with exit code 64", "[launcher][words]") {
  const test::TempDir dir;
  const WorkingDirectory inside(dir.path());
  const test::CapturedOutput out(1);
  for (const Slip& slip : slips()) {
    CAPTURE(slip.words);
    CHECK(message_of(ExitCode::kUsage, "", [&] { launcher::dispatch(slip.words); }) == slip.answer);
  }
  CHECK(out.text().empty());
  CHECK(std::filesystem::is_empty(dir.path()));
}

// The words of the first quoted command line of an answer, as a shell takes them; empty: there is none.
std::vector<std::string> suggested_words(const std::string& answer) {
  static const std::string kBegin = "did you mean 'dslaunch ";
  const size_t begin = answer.find(kBegin);
  if (begin == answer.npos) return {};
  const std::string line = answer.substr(begin + kBegin.size(), answer.find("'?", begin) - begin - kBegin.size());
  std::vector<std::string> words(1);
  bool is_quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      is_quoted = !is_quoted;
    } else if (c == ' ' && !is_quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

TEST_CASE("every command line that an answer suggests can be pasted", "[launcher][words]") {
  int num_suggested = 0;
  for (const Slip& slip : slips()) {
    const auto words = suggested_words(slip.answer);
    if (words.empty()) continue;
    CAPTURE(slip.answer);
    num_suggested += 1;
    const auto arguments = launcher::split_arguments(words);
    if (arguments.command == "exec") {
      CHECK_NOTHROW(launcher::read_exec_options(arguments));
    } else if (arguments.command == "run") {
      CHECK_NOTHROW(launcher::read_run_options(arguments));
    }
  }
  CHECK(num_suggested > 10);
}

TEST_CASE("a directory with the name of a command is not a model", "[launcher][words]") {
  const test::TempDir dir;
  const WorkingDirectory inside(dir.path());
  std::filesystem::create_directory("bench");
  CHECK(message_of(ExitCode::kUsage, "", [] {
          launcher::dispatch({"bench", "comm"});
        }) == "bench comm is not supported yet");
}

TEST_CASE("dslaunch without arguments prints a short help and exits with 64", "[launcher][words]") {
  const test::CapturedOutput out(1);
  const test::CapturedOutput err(2);
  CHECK(launcher::dispatch({}) == to_int(ExitCode::kUsage));
  const std::string text = err.text();
  CHECK(out.text().empty());
  CHECK(std::count(text.begin(), text.end(), '\n') < 40);
  for (const char* part :
       {"MODEL.pt --config FILE", "dslaunch exec [options] -- PROGRAM ARGUMENTS", "dslaunch --help"}) {
    CHECK_THAT(text, Catch::Matchers::Contains(part));
  }
}

TEST_CASE("infer answers values that are too small itself", "[launcher][words]") {
  for (const char* option : {"--num_tokens=0", "--context=0", "--temperature=-1"}) {
    CHECK_THAT(message_of(ExitCode::kUsage, "",
                          [&] {
                            launcher::dispatch({"infer", "runs/a", "--prompt", "a", option});
                          }),
               Catch::Contains("is too small") && Catch::EndsWith("; see 'dslaunch infer --help'"));
  }
}

TEST_CASE("files that cannot be models are refused before anything is started", "[launcher][words]") {
  const test::TempDir dir;
  const WorkingDirectory inside(dir.path());
  const auto answer = [](ExitCode code, const std::string& model) {
    return message_of(code, "", [&] { launcher::dispatch({"--device", "cpu", "--data", "x.npz", model}); });
  };
  CHECK(answer(ExitCode::kNoInput, "nowhere.pt") == "the model nowhere.pt does not exist");
  CHECK(message_of(ExitCode::kNoInput, "", [] {
          launcher::dispatch({"plan", "nowhere.pt"});
        }) == "the model nowhere.pt does not exist");
  CHECK(answer(ExitCode::kBadInput, "net.pt2") ==
        "net.pt2 was written by torch.export (.pt2); dslaunch trains TorchScript: save the module with "
        "torch.jit.save(torch.jit.script(model), 'model.pt')");
  std::filesystem::create_directory("folder.pt");
  CHECK(answer(ExitCode::kBadInput, "folder.pt") ==
        "folder.pt is a directory; a model is one file, written by torch.jit.save");
}

TEST_CASE("a misspelt path is answered with the similar one that exists", "[launcher][words]") {
  const test::TempDir dir;
  const WorkingDirectory inside(dir.path());
  for (const char* file : {"hosts.txt", "model.pt", "names.env"}) dir.write(file, "x");
  std::filesystem::create_directories("runs/first");
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows{
      {{"hosts", "--hostfile", "host.txt"}, "hosts.txt"},
      {{"plan", "modle.pt"}, "model.pt"},
      {{"report", "runs/frist"}, "runs/first"},
      {{"exec", "--device", "cpu", "--chdir", "run/first", "--", "true"}, "runs/first"},
      {{"exec", "--device", "cpu", "--env_file", "name.env", "--", "true"}, "names.env"},
  };
  for (const auto& [words, meant] : rows) {
    CAPTURE(words);
    CHECK_THAT(message_of(ExitCode::kNoInput, "", [&line = words] { launcher::dispatch(line); }),
               Catch::Matchers::Contains("did you mean '" + meant + "'?"));
  }
}

TEST_CASE("config check, hosts and doctor name a file that is not there", "[launcher][words]") {
  const test::TempDir dir;
  const test::CapturedOutput out(1);
  const test::CapturedOutput err(2);
  const std::string none = dir / "none", batch = dir.write("ds.json", "{train_batch_size: 6}");
  CHECK(launcher::dispatch({"config", "check", none}) == to_int(ExitCode::kNoInput));
  CHECK_THAT(out.text() + err.text(), Catch::Matchers::Contains("cannot read the job file '" + none + "'"));
  CHECK(launcher::dispatch({"config", "check", batch, "--world_size", "3"}) == 0);
  CHECK(launcher::dispatch({"config", "check", batch, "--world_size", "4"}) == to_int(ExitCode::kBadInput));
  CHECK(launcher::dispatch({"config", "check", batch, "--num_gpus", "3"}) == 0);
  CHECK(launcher::dispatch({"config", "check", batch, "--num_gpus", "2", "--num_nodes", "2"}) ==
        to_int(ExitCode::kBadInput));
  CHECK_THAT(message_of(ExitCode::kNoInput, dir.path(),
                        [&] {
                          launcher::dispatch({"hosts", "--hostfile", none});
                        }),
             Catch::Matchers::Contains("DIR/none"));
}
