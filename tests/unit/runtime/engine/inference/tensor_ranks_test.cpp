// Texts of a model whose GEMMs several ranks share, each a thread, beside those of one rank.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "runtime/engine/inference/generate_texts.hpp"
#include "runtime/engine/inference/infer_model.hpp"
#include "runtime/state/model_metadata.hpp"
#include "support/script_models.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::inference;
using test::random_weight;

namespace {

// Grouped heads with rotated positions, an MLP with a gate, and a head of its own over bytes.
torch::jit::Module make_net() {
  return test::compile({"Net",
                        R"(
    def forward(self, ids, labels):
        n = ids.size(1)
        x = torch.embedding(self.table, ids)
        h = torch.layer_norm(x, [32], self.norm)
        angles = torch.arange(n).unsqueeze(1) * self.rates
        q = torch.linear(h, self.query).view([ids.size(0), n, 6, 8]).transpose(1, 2) * torch.cos(angles)
        k = torch.linear(h, self.key).view([ids.size(0), n, 6, 8]).transpose(1, 2) * torch.cos(angles)
        v = torch.linear(h, self.value).view([ids.size(0), n, 6, 8]).transpose(1, 2)
        y = torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)
        x = x + torch.linear(y.transpose(1, 2).reshape([ids.size(0), n, 48]), self.out, self.out_bias)
        x = x + torch.linear(torch.silu(torch.linear(x, self.gate)) * torch.linear(x, self.up), self.down)
        logits = torch.linear(x, self.head)
        return torch.cross_entropy_loss(logits.view(-1, 256), labels.view(-1))
  )",
                        {{"table", random_weight({256, 32}, 1)},
                         {"norm", random_weight({32}, 2)},
                         {"rates", random_weight({8}, 3)},
                         {"query", random_weight({48, 32}, 4)},
                         {"key", random_weight({48, 32}, 5)},
                         {"value", random_weight({48, 32}, 6)},
                         {"out", random_weight({32, 48}, 7)},
                         {"out_bias", random_weight({32}, 8)},
                         {"gate", random_weight({50, 32}, 9)},
                         {"up", random_weight({50, 32}, 10)},
                         {"down", random_weight({32, 50}, 11)},
                         {"head", random_weight({256, 32}, 12)}}});
}

using Texts = std::vector<std::vector<int64_t>>;

struct Written {
  Texts texts;
  InferReport report;
  int64_t weight_bytes = 0;
};

Written write_texts(const std::string& path, comm::Communicator* ranks, const Sampling& sampling, bool steps) {
  const auto model = open_model({.path = path, .tensor_ranks = ranks});
  GenerateOptions options{.prompts = {{"abcde", {}, false, "a"}, {"xy", {}, false, "b"}, {"012345678", {}, false, "c"}},
                          .num_tokens = 12,
                          .sampling = sampling,
                          .seed = 3,
                          .model = {.steps_on_host = steps}};
  Written out{.texts = Texts(3), .weight_bytes = model->weight_bytes()};
  out.report = generate_texts(*model, at::kCPU, options,
                              {.on_finished = [&](size_t i, const WrittenText& text) { out.texts[i] = text.ids; }});
  return out;
}

std::vector<Written> write_on_ranks(const std::string& path, int ranks, const Sampling& sampling, bool steps) {
  const auto group = std::make_shared<test::ThreadGroup>(ranks);
  std::vector<Written> out(static_cast<size_t>(ranks));
  std::vector<std::exception_ptr> failures(out.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator own(group, rank);
      try {
        out[static_cast<size_t>(rank)] = write_texts(path, &own, sampling, steps);
      } catch (...) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        group->abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return out;
}

}  // namespace

TEST_CASE("tensor ranks write the texts of one rank", "[runtime][engine][generate][tensor_ranks]") {
  log::set_level(log::Level::kWarning);
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  make_net().save(path, {{kModelMetadataName, R"({"format": 1})"}});
  const Sampling greedy{.temperature = 0}, drawn{.temperature = 0.8};
  for (const auto& [ranks, steps] : {std::pair{2, false}, {3, true}}) {
    INFO(ranks << " ranks, in steps: " << steps);
    const auto alone = write_texts(path, nullptr, steps ? drawn : greedy, steps);
    CHECK(alone.report.cache == "on");
    CHECK(alone.texts[0].size() == 12);
    for (const auto& own : write_on_ranks(path, ranks, steps ? drawn : greedy, steps)) {
      CHECK(own.texts == alone.texts);
      CHECK(own.report.cache == "on");
      CHECK(own.report.steps == alone.report.steps);
      CHECK(own.report.tensor_ranks == ranks);
      CHECK(own.weight_bytes < alone.weight_bytes * 3 / 4);
      CHECK(own.report.cache_bytes < alone.report.cache_bytes);
    }
  }
  log::set_level(log::Level::kInfo);
}
