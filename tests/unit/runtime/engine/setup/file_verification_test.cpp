#include "runtime/engine/setup/file_verification.hpp"

#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "support/expect_error.hpp"
#include "support/mixed_net.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using Catch::Matchers::Contains;
using runtime::engine::setup::FileVerification;
using runtime::model::file::load_mapped_module;

namespace {

// What forward computes from the file's code, parameters and buffers; empty: the file is refused, with 65.
std::optional<at::Tensor> outputs_of(const std::string& path) try {
  FileVerification verification({path});
  auto module = load_mapped_module(path);
  runtime::model::file::refuse_inference_file(path);
  verification.finish();
  const at::NoGradGuard no_grad;
  module.eval();
  return module.forward({test::random_values({4, 5}, 7)}).toTensor();
} catch (const UserError& error) {
  CHECK(error.code() == ExitCode::kBadInput);
  return std::nullopt;
}

// One bit, one byte, or a block of zeros, as a bad disk or a cut copy leaves.
void damage(std::string& bytes, std::mt19937& random) {
  const size_t at = random() % bytes.size();
  switch (random() % 3) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    default:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), std::min<size_t>(bytes.size() - at, 64), '\0');
  }
}

size_t place_of(const std::string& bytes, const at::Tensor& values) {
  return bytes.find(std::string(static_cast<const char*>(values.data_ptr()), values.nbytes()));
}

// How many of the damages were noticed.
int damage_model(int num_damages) {
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  test::make_mixed_net().save(path);
  const std::string whole = test::read_file(path);
  const at::Tensor expected = *outputs_of(path);
  std::mt19937 random(1);
  int num_refused = 0;
  for (int i = 0; i < num_damages; ++i) {
    std::string damaged = whole;
    damage(damaged, random);
    test::write_file(path, damaged);
    INFO("damage " << i);
    const auto outputs = outputs_of(path);
    num_refused += outputs ? 0 : 1;
    if (outputs) CHECK(outputs->equal(expected));
  }
  return num_refused;
}

}  // namespace

#ifndef __SANITIZE_ADDRESS__  // LibTorch asks for as much memory as a damaged number says, which ends a program there
TEST_CASE("a damaged model is refused, or its numbers are those of the whole one", "[runtime][engine][setup]") {
  CHECK(damage_model(60) > 20);
}
TEST_CASE("a thousand damaged models are refused, or their numbers are right", "[.][slow][runtime][engine][setup]") {
  CHECK(damage_model(1000) > 400);
}
#endif

TEST_CASE("a flipped bit in a weight is named with its file, record and parameter", "[runtime][engine][setup]") {
  const test::TempDir folder;
  const std::string path = folder / "net.pt";
  torch::jit::Module net("Net");
  const at::Tensor weight = test::random_values({40, 50}, 3);
  net.register_parameter("weight", weight.clone(), false);
  net.register_buffer("scale", test::random_values({7, 9}, 4));
  net.define("def forward(self, x):\n    return torch.matmul(x, self.weight) * self.scale.sum()\n");
  net.save(path);
  std::string bytes = test::read_file(path);
  const size_t at = place_of(bytes, weight);
  REQUIRE(at != std::string::npos);
  bytes[at + 1001] = static_cast<char>(bytes[at + 1001] ^ 1);
  test::write_file(path, bytes);
  CHECK_NOTHROW(load_mapped_module(path));  // PyTorch's reader does not notice
  CHECK_THAT(test::message_of(ExitCode::kBadInput, folder.path(), [&] { FileVerification({path}).finish(); }),
             Contains("'DIR/net.pt' is damaged: the checksum of its record 'net/data/") &&
                 Contains("(tensor 'weight') does not match; copy or save the file again"));

  // The ranks of a host share the records: one of them has this one.
  int num_found = 0;
  for (int rank = 0; rank < 3; ++rank) {
    try {
      FileVerification({path}, {rank, 3}).finish();
    } catch (const UserError&) {
      ++num_found;
    }
  }
  CHECK(num_found == 1);
}
