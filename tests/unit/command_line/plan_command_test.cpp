// What `dslaunch plan` prints.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/launcher/commands.hpp"
#include "apps/worker/commands.hpp"
#include "config/load.hpp"
#include "runtime/model/torchscript/load_script_model.hpp"
#include "support/captured_output.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/mixed_net.hpp"
#include "support/script_models.hpp"

using namespace dslaunch;

namespace {

std::string output_of(std::vector<std::string> words) {
  const test::CapturedOutput out(1);
  words.insert(words.begin(), "plan");
  CHECK(launcher::dispatch(words) == 0);
  return out.text();
}

}  // namespace

TEST_CASE("plan prints a schedule, its bubble and its memory", "[launcher][plan]") {
  CHECK(output_of({"--schedule", "2,3"}) ==
        "1f1b, 2 stages, 3 micro batches; in time slots, F (forward) takes 1, B (backward) 2\n"
        "\n"
        "stage 0 F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
        "stage 1 .  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n"
        "\n"
        "bubble 25.0 % of 12 slots\n"
        "\n"
        "stage   idle    micro batches with live activations\n"
        "    0  25.0 %     2\n"
        "    1  25.0 %     1\n");
  CHECK(output_of({"--schedule=2,3", "--kind", "zb-h1"}) ==
        "zb-h1, 2 stages, 3 micro batches; in time slots, F (forward) takes 1, I (input gradient) 1, W (weight "
        "gradient) 1\n"
        "\n"
        "stage 0 F0 F1 .  I0 W0 F2 I1 W1 I2 W2\n"
        "stage 1 .  F0 I0 F1 I1 W0 F2 I2 W1 W2\n"
        "\n"
        "bubble 10.0 % of 10 slots\n"
        "\n"
        "stage   idle    micro batches with live activations, with deferred weight gradients\n"
        "    0  10.0 %     2, 1\n"
        "    1  10.0 %     1, 2\n");
  CHECK(output_of({"--schedule", "1,1", "--kind", "gpipe", "--times", "2,1,2"}) ==
        "gpipe, 1 stage, 1 micro batch; in time slots, F (forward) takes 2, B (backward) 3\n"
        "\n"
        "stage 0 F0 F0 B0 B0 B0\n"
        "\n"
        "bubble 0.0 % of 5 slots\n"
        "\n"
        "stage   idle    micro batches with live activations\n"
        "    0   0.0 %     1\n");
}

TEST_CASE("plan --json has the times of all actions", "[launcher][plan]") {
  const auto document = nlohmann::json::parse(output_of({"--schedule", "2,1", "--times", "2,1,1", "--json"}));
  CHECK(document["schedule"] == "1f1b");
  CHECK(document["num_stages"] == 2);
  CHECK(document["num_micro_batches"] == 1);
  CHECK(document["slots"] == nlohmann::json{{"forward", 2}, {"input_gradient", 1}, {"weight_gradient", 1}});
  CHECK(document["duration"] == 8);
  CHECK(document["bubble"] == 0.5);
  REQUIRE(document["stages"].size() == 2);
  const auto& last = document["stages"][1];
  CHECK(last["stage"] == 1);
  CHECK(last["idle_share"] == 0.5);
  CHECK(last["peak_live_activations"] == 1);
  CHECK(last["peak_deferred_weight_gradients"] == 0);
  const auto action = [](const char* name, int begin, int end) {
    return nlohmann::json{{"action", name}, {"micro_batch", 0}, {"begin", begin}, {"end", end}};
  };
  CHECK(last["actions"] == nlohmann::json{action("receive_activation", 0, 2), action("forward", 2, 4),
                                          action("backward", 4, 6), action("send_gradient", 6, 6)});
}

TEST_CASE("plan --params prints the tables of DeepSpeed's estimates", "[launcher][plan]") {
  CHECK(output_of({"--params", "2783959040", "--largest_layer", "65798144", "--num_gpus", "1"}) ==
        "2,783,959,040 parameters, 65,798,144 in the largest layer; 1 host with 1 GPU\n"
        "DeepSpeed's estimates for parameters, gradients and optimizer state (mixed precision, Adam); activations come "
        "on top\n"
        "\n"
        "ZeRO 2: GiB\n"
        "  per host    per GPU   offload_optimizer\n"
        "     62.23       5.19   cpu\n"
        "     15.56      51.86   none\n"
        "\n"
        "ZeRO 3: GiB\n"
        "  per host    per GPU   offload_param  offload_optimizer  zero.Init\n"
        "     70.00       0.25   cpu            cpu                yes\n"
        "     70.00       0.25   cpu            cpu                no\n"
        "     62.23       5.43   none           cpu                yes\n"
        "     62.23       5.43   none           cpu                no\n"
        "      0.37      46.91   none           none               yes\n"
        "     15.56      46.91   none           none               no\n");
  CHECK_THAT(output_of({"--params", "1e12", "--num_nodes", "4", "--num_gpus", "8"}),
             Catch::StartsWith("1,000,000,000,000 parameters; 4 hosts with 8 GPUs\n") &&
                 Catch::EndsWith("ZeRO 3 needs the largest layer, too: --largest_layer N\n"));
  const auto document = nlohmann::json::parse(output_of({"--params", "7B", "--largest_layer", "131M", "--json"}));
  CHECK(document["num_parameters"] == 7'000'000'000);
  CHECK(document["zero3"][0]["bytes_per_host"] == 7e9 * 18 * 1.5);
  CHECK(document["zero2"][1] ==
        nlohmann::json{{"offload_optimizer", "none"}, {"bytes_per_host", 4.2e10}, {"bytes_per_gpu", 1.4e11}});
}

TEST_CASE("plan --help shows examples and says what the letters stand for", "[launcher][plan]") {
  const std::string help = output_of({"--help"});
  for (const char* part : {"dslaunch plan --schedule 4,8", "I and W its two parts", "--kind", "1f1b|gpipe|zb-h1"}) {
    CHECK_THAT(help, Catch::Contains(part));
  }
}

TEST_CASE("a model file is planned without training it", "[worker][plan]") {
  const test::JobFiles job(test::make_mixed_net());
  job.folder.write("ds.json", R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}})");
  const auto output_of_worker = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan", job.model, "--config", job.folder / "ds.json"};
    words.insert(words.end(), more.begin(), more.end());
    const test::CapturedOutput out(1);
    const int code = worker::dispatch(words);
    CHECK(code == 0);
    return out.text();
  };
  const auto document = nlohmann::json::parse(output_of_worker(
      {"--num_gpus", "2", "--num_nodes", "2", "--gpu_memory", "1GiB", "--host_memory", "1GiB", "--json"}));
  CHECK(document["num_data_ranks"] == 4);
  CHECK(document["ranks_per_host"] == 2);
  CHECK(document["device"] == "cuda");
  CHECK(document["num_parameters"] == 125);  // 5·5 tied, frozen, in two blocks with 5 more each, and 5·3
  CHECK(document["num_trained_parameters"] == 100);
  for (const auto& setting : document["settings"]) CHECK(setting["fits"] == true);
  const auto on_cpu = output_of_worker({"--device", "cpu", "--set", "zero_optimization.stage=3", "--num_gpus", "3"});
  CHECK_THAT(on_cpu, Catch::Matchers::Contains("1 host with 3 CPU ranks: 3 data ranks; bf16, AdamW") &&
                         Catch::Matchers::Contains("\n*    3  none"));
  CHECK(test::message_of(ExitCode::kContradiction, "",
                         [&] {
                           output_of_worker({"--num_gpus", "4", "--set", "zero_optimization.stage=3", "--set",
                                             "zero_optimization.zero_hpz_partition_size=3"});
                         }) ==
        "command line: zero_hpz_partition_size 3 does not divide the 4 data-parallel ranks; use the number of ranks of "
        "a host");
}

TEST_CASE("a plan needs no weights", "[worker][plan]") {
  const test::JobFiles job(test::make_mixed_net());
  const std::string empty = job.folder / "empty.pt";
  runtime::model::torchscript::write_model_skeleton(job.model, empty);
  job.folder.write("ds.json", R"({"init": {"from": "not_downloaded"}})");
  const test::CapturedOutput out(1);
  CHECK(worker::dispatch({"plan", empty, "--config", job.folder / "ds.json", "--device", "cpu"}) == 0);
  CHECK_THAT(out.text(), Catch::Matchers::Contains("125 parameters"));
}

TEST_CASE("a plan of tensor ranks compares split units with whole ones", "[worker][plan]") {
  // A gate and the factor that it gates, in one weight.
  const auto net = test::compile(
      {"Net",
       R"(
def forward(self, x):
    gate, up = torch.linear(x, self.gate_up.weight).chunk(2, -1)
    return torch.mean(torch.linear(gate * up, self.down.weight))
)",
       {},
       {},
       {{"gate_up",
         test::compile({"GateUp", "def forward(self):\n    return 0\n", {{"weight", test::random_weight({8, 4}, 1)}}})},
        {"down", test::compile(
                     {"Down", "def forward(self):\n    return 0\n", {{"weight", test::random_weight({4, 4}, 2)}}})}}});
  const test::JobFiles job(net);
  net.save(job.model,
           {{"dslaunch.json", R"({"format": 1, "inputs": [{"name": "x", "shape": [4], "dtype": "float32"}]})"}});
  const auto plan = [&](const std::string& tensor_parallel, const std::vector<std::string>& more) {
    job.folder.write("ds.json", R"({"tensor_parallel": )" + tensor_parallel + "}");
    std::vector<std::string> words{"plan",     job.model, "--config",   job.folder / "ds.json",
                                   "--device", "cpu",     "--num_gpus", "2"};
    words.insert(words.end(), more.begin(), more.end());
    const test::CapturedOutput out(1);
    const int code = worker::dispatch(words);
    CHECK(code == 0);
    return out.text();
  };
  CHECK_THAT(plan(R"({"size": 2})", {}),
             Catch::Contains("\nprobe: 1 of 1 distinct units agree with their unsplit form, forward and backward\n"));
  CHECK(nlohmann::json::parse(plan(R"({"size": 2})", {"--json"}))["placements"]["probe"] ==
        nlohmann::json{{"num_compared", 1}, {"not_compared", nlohmann::json::array()}});
  CHECK_THAT(plan(R"({"size": 2, "probe": false})", {}),
             Catch::Contains("\nprobe: left out (tensor_parallel.probe is false)\n"));
  CHECK(nlohmann::json::parse(plan("{}", {"--json"}))["placements"].is_null());
  const std::string message =
      test::message_of(ExitCode::kBadInput, "", [&] { plan(R"({"size": 2, "policy": {"gateup": "column"}})", {}); });
  CHECK(message ==
        "tensor_parallel.policy.gateup: no module with parameters is named 'gateup', alone or at its end; check its "
        "spelling, or leave it out");
}

TEST_CASE("activations are measured where that is asked for", "[worker][plan]") {
  const test::JobFiles job(test::make_mixed_net());
  job.folder.write("ds.json", job.config(test::json::object()).dump());
  const auto measured = [&](int64_t micro_batch) -> int64_t {
    const test::CapturedOutput out(1);
    const int code =
        worker::dispatch({"plan", job.model, "--config", job.folder / "ds.json", "--device", "cpu", "--set",
                          "train_batch_size=" + std::to_string(micro_batch), "--measure", "--json"});
    CHECK(code == 0);
    return nlohmann::json::parse(out.text())["activations"]["bytes"];
  };
  // The net keeps eight tensors of 5 floats for a sample, and the inputs of its loss; twice as many for twice as many.
  const int64_t of_six = measured(6), of_twelve = measured(12);
  CHECK(of_twelve >= 12 * 8 * 5 * 4);
  CHECK(of_twelve <= 12 * 20 * 5 * 4);
  CHECK(2 * of_six == Approx(of_twelve).epsilon(0.1));
  job.folder.write("no_data.json", "{}");
  CHECK(test::message_of(ExitCode::kBadInput, "", [&] {
          worker::dispatch({"plan", job.model, "--config", job.folder / "no_data.json", "--measure"});
        }) == "--measure needs a micro batch: pass --data PATH, or set \"data\": {\"train\": PATH} in the config");
}

TEST_CASE("a suggested config is written to a new file", "[worker][plan]") {
  const test::JobFiles job(test::make_mixed_net());
  job.folder.write("ds.json", job.config(test::json::object()).dump());
  const std::string written = job.folder / "out.json";
  const std::vector<std::string> words{"plan",     job.model, "--config",  job.folder / "ds.json",
                                       "--device", "cpu",     "--suggest", written};
  const auto suggest = [](const std::vector<std::string>& command) {
    const test::CapturedOutput out(1);
    const int code = worker::dispatch(command);
    return std::pair{code, out.text()};
  };
  // What is the fastest depends on how fast this machine is just now, unless that is given.
  auto with_rates = words;
  for (const char* word :
       {"--tflops", "1", "--device_bandwidth", "100GiB", "--link_bandwidth", "10GiB", "--host_bandwidth", "50GiB"}) {
    with_rates.emplace_back(word);
  }
  const auto [code, text] = suggest(with_rates);
  CHECK(code == 0);
  CHECK_THAT(text, Catch::Matchers::Contains("suggested, of ") &&
                       Catch::Matchers::Contains("with 12 samples a step on 1 data rank: ZeRO 0, no recomputation, "
                                                 "micro batch 12 x 1 accumulation step\n"));
  auto measured = words;
  measured.back() += ".measured";
  const auto [measured_code, measured_text] = suggest(measured);
  CHECK(measured_code == 0);
  CHECK_THAT(measured_text, Catch::Matchers::Contains("suggested, of "));
  const auto loaded = config::load_file(written, {}, {.world_size = 1});
  CHECK(loaded.ok());
  CHECK(loaded.config.batch.train_batch == 12);
  CHECK(test::message_of(ExitCode::kCannotCreate, written, [&] { worker::dispatch(words); }) ==
        "--suggest 'DIR': the file exists; name one that does not");
  auto several = words;
  several.back() += ".2";
  several.insert(several.end(), {"--num_gpus", "2"});
  CHECK_THAT(suggest(several).second, Catch::Matchers::Contains("on 2 data ranks: "));
  several.insert(several.end(), {"--num_nodes", "2"});
  several[several.size() - 5] += ".hosts";
  CHECK(test::message_of(ExitCode::kUsage, "", [&] { worker::dispatch(several); }) ==
        "--suggest for 2 hosts needs --network_bandwidth SIZE: what a rank sends in collectives each second");
}
