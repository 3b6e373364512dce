// Which inputs index tables of known size, and how many classes a model's outputs have.
#include "runtime/model/analysis/index_bounds_analysis.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "script_fixtures.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model::analysis;
using torch::jit::Module;

namespace {

IndexUse use_of(const std::string& body) {
  Module inner("Inner");
  inner.register_parameter("weight", at::zeros({9, 3}), false);
  inner.define("def forward(self, ids):\n    return torch.embedding(self.weight, ids)\n");
  Module net("Net");
  net.register_parameter("table", at::zeros({5, 3}), false);
  net.register_parameter("layer", at::zeros({7, 3}), false);
  net.register_attribute("classes", c10::IntType::get(), 7);
  net.register_attribute("column", c10::IntType::get(), 2);
  net.register_module("inner", inner);
  net.define("def forward(self, ids, labels):\n" + body);
  return scan_index_use(runtime::model::graph::flatten_resolved(net));
}

std::optional<int64_t> classes_of(const std::string& body, const std::string& output = "") {
  const auto classes = use_of(body).num_classes;
  const auto found = classes.find(output);
  return found == classes.end() ? std::nullopt : std::optional(found->second);
}

constexpr char kLogits[] = "    logits = torch.linear(torch.embedding(self.table, ids), self.layer)\n";

}  // namespace

TEST_CASE("an output of a linear layer has as many classes as the layer has rows", "[runtime][model][bounds]") {
  CHECK(classes_of(std::string(kLogits) + "    return logits\n") == 7);
  CHECK(classes_of(std::string(kLogits) + "    return logits.float(), ids\n", "0") == 7);
  CHECK(classes_of(std::string(kLogits) + "    return torch.log_softmax(logits / 2.0, -1)\n") == 7);
  CHECK_FALSE(classes_of(std::string(kLogits) + "    return torch.relu(logits)\n"));
  const std::string dict = std::string(kLogits) + "    return {'hidden': torch.relu(logits), 'logits': logits}\n";
  CHECK(classes_of(dict, "logits") == 7);
  CHECK_FALSE(classes_of(dict, "hidden"));
  CHECK(classes_of(std::string(kLogits) + "    return ids, logits\n", "1") == 7);
  CHECK_FALSE(classes_of("    return ids\n"));
  CHECK_FALSE(classes_of(std::string(kLogits) + "    return logits * labels\n"));
}

TEST_CASE("views keep the classes where their last size is theirs", "[runtime][model][bounds]") {
  const auto classes = [](const std::string& view) {
    return classes_of(std::string(kLogits) + "    return " + view + "\n");
  };
  CHECK(classes("logits.view(-1, 7)") == 7);
  CHECK(classes("logits.reshape([-1, self.classes])") == 7);
  CHECK(classes("logits.view(-1, logits.size(-1))") == 7);
  CHECK(classes("logits.view(-1, logits.size()[-1])") == 7);
  CHECK_FALSE(classes("logits.view(-1, 14)"));
  CHECK_FALSE(classes("logits.view(-1, logits.size(0))"));
  CHECK_FALSE(classes("logits.view(-1, ids.size(-1))"));
  CHECK_FALSE(classes("logits.view(ids.size())"));
}

TEST_CASE("tables of submodules bound their indices, losses of all kinds their labels", "[runtime][model][bounds]") {
  const auto inner = use_of("    return self.inner.forward(ids.view(-1))\n");
  REQUIRE(inner.limits.size() == 1);
  CHECK(inner.limits[0].bound == 9);
  for (const char* loss : {"torch.nll_loss(torch.log_softmax(logits, -1), labels, None, 1, -100)",
                           "torch.nll_loss_nd(torch.log_softmax(logits, -1), labels, None, 1, -100)",
                           "torch.cross_entropy_loss(logits, labels)"}) {
    CAPTURE(loss);
    const auto found = use_of(std::string(kLogits) + "    return " + loss + "\n");
    REQUIRE(found.limits.size() == 2);
    CHECK((found.limits[1].input == 1 && found.limits[1].bound == 7 && found.limits[1].ignored == -100));
  }
}

TEST_CASE("arguments that hold indices are known without the size of their table", "[runtime][model][bounds]") {
  const auto arguments = [](const std::string& body) {
    std::vector<std::pair<size_t, bool>> out;
    for (const auto& argument : use_of(body).arguments) out.emplace_back(argument.input, argument.is_label);
    return out;
  };
  using Arguments = std::vector<std::pair<size_t, bool>>;
  CHECK(arguments(std::string(kLogits) + "    return torch.cross_entropy_loss(torch.relu(logits), labels)\n") ==
        Arguments{{0, false}, {1, true}});
  CHECK(arguments("    return torch.gather(self.table * 2, 0, labels)\n") == Arguments{{1, false}});
  CHECK(arguments(std::string(kLogits) + "    return torch.cross_entropy_loss(logits, ids)\n") ==
        Arguments{{0, false}});
  CHECK(arguments("    return ids * labels\n").empty());
}

TEST_CASE("a table of positions bounds the length of the input that counts them", "[runtime][model][bounds]") {
  const auto lengths = [](const std::string& positions) {
    return use_of("    return torch.embedding(self.table, " + positions + ")\n").lengths;
  };
  for (const char* positions : {"torch.arange(ids.size(1))", "torch.arange(0, ids.size()[1]).unsqueeze(0)",
                                "torch.arange(ids.shape[1], device=ids.device)"}) {
    CAPTURE(positions);
    const auto found = lengths(positions);
    REQUIRE(found.size() == 1);
    CHECK((found[0].input == 0 && found[0].dim == 1 && found[0].bound == 5));
  }
  CHECK(lengths("torch.arange(1, ids.size(1))").empty());
  CHECK(lengths("torch.arange(ids.size(1) - 1)").empty());
  CHECK(lengths("torch.arange(3)").empty());
  CHECK(lengths("ids").empty());
}

TEST_CASE("indices from parts of an input bound those parts, where they are known", "[runtime][model][bounds]") {
  const auto limits = [](const std::string& index) {
    return use_of("    return torch.embedding(self.table, " + index + ")\n").limits;
  };
  const auto whole = limits("ids[:]");
  REQUIRE(whole.size() == 1);
  CHECK(whole[0].range.is_all());
  const auto column = limits("ids[:, self.column]");
  REQUIRE(column.size() == 1);
  CHECK((column[0].range.dim == 1 && column[0].range.begin == 2 && column[0].range.end == 3));
  CHECK(limits("ids[:, ::2]").empty());             // every other one
  CHECK(limits("ids[:, int(ids.dim())]").empty());  // which one is not known
  CHECK(limits("ids[0][1:]").empty());              // a part of a part
  CHECK(limits("ids[:, 0].view(-1)").size() == 1);  // the view comes after the part
  CHECK(limits("ids.view(-1)[3]").empty());         // and here before it
  CHECK(limits("ids + 1").empty());
  CHECK(limits("torch.arange(5)").empty());
}
