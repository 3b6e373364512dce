// One parse for several loads.
#include "runtime/model/torchscript/script_file.hpp"

#include <torch/csrc/jit/passes/canonicalize.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "runtime/model/graph/walk.hpp"
#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::torchscript;

TEST_CASE("a file that is loaded from again is parsed once, and gives the graphs that it has",
          "[runtime][model][script_file]") {
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::make_net("def forward(self, x):\n    return self.two.forward(self.one.forward(x * self.scale)).sum()\n",
                 {{"one", test::make_layer()}, {"two", test::make_layer()}})
      .save(path);
  const ScriptFile file(path, /*loads_again=*/true);
  const auto text = [](const torch::jit::Module& module) {
    std::string out;
    graph::for_every_function(module, [&](const auto& function) {
      out += torch::jit::Canonicalize(function.graph()->copy(), /*keep_unique_names=*/false)->toString(false);
    });
    return out;
  };
  const std::string as_saved = text(file.module());
  const auto first = load_script_stage(file, {}, {}, {.num_stages = 2, .stage = 0, .partition = "uniform"})->facts;
  CHECK(text(file.module()) == as_saved);
  const auto second = load_script_stage(file, {}, {}, {.num_stages = 2, .stage = 1, .partition = "uniform"})->facts;
  CHECK(first.stage->plan.stages[1].carried_in[0].origin == second.stage->plan.stages[1].carried_in[0].origin);
  std::filesystem::remove(path);
  CHECK(text(file.module()) == as_saved);
}

TEST_CASE("a loaded model needs its file no more to plan its recomputation", "[runtime][model][script_file]") {
  test::ModelRun run(test::make_net("def forward(self, x):\n    return self.two.forward(self.one.forward(x)).sum()\n",
                                    {{"one", test::make_layer()}, {"two", test::make_layer()}}),
                     {"Block"});
  std::filesystem::remove(run.path());
  CHECK(run.model->runnable->set_recomputation({}) ==
        "activation_checkpointing: 2 of 2 blocks are recomputed in backward");
}
