// Parameters that rest in a file while a model is used: what units get, what is read, and what stays in memory.
#include "runtime/engine/inference/streamed_parameters.hpp"

#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>

#include "support/expect_error.hpp"
#include "support/faulty_queue.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::inference;

namespace {

constexpr int64_t kPage = file_io::kDirectAlignment;

// The root, a unit of two types with an empty parameter, and one with a frozen parameter of several pages.
ParameterTable make_table() {
  ParameterTable out;
  const auto add = [&](std::vector<int64_t> shape, at::ScalarType dtype, bool trainable, int unit) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    out.parameters.push_back({"", std::move(shape), numel, dtype, trainable, unit, {}});
  };
  add({3, 5}, at::kFloat, true, 0);
  add({7}, at::kFloat, true, 1);
  add({2, 3}, at::kBFloat16, true, 1);
  add({0, 4}, at::kFloat, true, 1);
  add({1}, at::kFloat, true, 1);
  add({kPage, 3}, at::kFloat, false, 2);
  out.units = {{"", {0}}, {"first", {1, 2, 3, 4}}, {"second", {}, {5}}};
  return out;
}

at::Tensor value_of(const ParameterTable& table, int parameter) {
  const auto& info = table.parameters[static_cast<size_t>(parameter)];
  return (at::arange(info.numel, at::kInt) % 101 + 10 * parameter).to(info.dtype).reshape(info.shape);
}

struct Streamed {
  test::TempDir folder;
  ParameterTable table = make_table();
  std::atomic<int64_t> pages{0};  // that were read
  std::unique_ptr<StreamedParameters> parameters;

  explicit Streamed(int num_buffers) {
    offload::ParameterFileOptions options;
    options.directories = {folder.path()};
    options.buffer_numel = kPage;
    options.num_buffers = num_buffers;
    options.wrap_queue = [this](auto inner) -> std::unique_ptr<file_io::BlockQueue> {
      return std::make_unique<test::FaultyQueue>(std::move(inner), [this](const file_io::Block& block) {
        if (!block.is_write) pages += block.bytes / kPage;
        return std::optional<int64_t>();
      });
    };
    parameters = std::make_unique<StreamedParameters>(
        table, options, [this](int parameter, int64_t begin, const at::Tensor& out) {
          out.copy_(value_of(table, parameter).flatten().narrow(0, begin, out.numel()));
        });
    pages = 0;
  }

  void check_unit(int unit) {
    const UnitValues values = parameters->acquire(unit, UnitCall::kInference);
    const auto check = [&](const std::vector<int>& members, const std::vector<at::Tensor>& got) {
      REQUIRE(got.size() == members.size());
      for (size_t i = 0; i < members.size(); ++i) {
        const at::Tensor want = value_of(table, members[i]);
        CHECK(got[i].scalar_type() == want.scalar_type());
        CHECK(at::equal(got[i], want));
      }
    };
    check(table.units[static_cast<size_t>(unit)].parameters, values.parameters);
    check(table.units[static_cast<size_t>(unit)].frozen, values.frozen);
  }

  void forward(const std::vector<int>& units) {
    check_unit(0);
    for (const int unit : units) {
      check_unit(unit);
      parameters->release(unit);
    }
    parameters->release(0);
  }
};

}  // namespace

TEST_CASE("units get their parameters, whatever their order is", "[runtime][engine][inference]") {
  Streamed streamed(GENERATE(1, 2, 5));
  for (const std::vector<int>& order :
       {std::vector<int>{1, 2}, {1, 2}, {2, 1}, {2, 2, 1}, {2, 2, 1}, {}, {1}, {1, 2}}) {
    streamed.forward(order);
  }
  CHECK(std::filesystem::is_empty(streamed.folder.path()));
}

TEST_CASE("a forward reads each unit once, and holds those that run", "[runtime][engine][inference]") {
  constexpr int kBuffers = 2;
  Streamed streamed(kBuffers);
  // The root's page, two of the first unit, twelve of the second one; a buffer has four, and is read ahead.
  for (int number = 1; number <= 4; ++number) {
    streamed.forward({1, 2});
    CHECK(streamed.pages >= number * 15);
    CHECK(streamed.pages <= number * 15 + kBuffers * 4);
  }
  auto root = streamed.parameters->acquire(0, UnitCall::kInference);
  const c10::weak_intrusive_ptr<c10::TensorImpl> of_root(root.parameters[0].getIntrusivePtr());
  auto second = streamed.parameters->acquire(2, UnitCall::kInference);
  const c10::weak_intrusive_ptr<c10::TensorImpl> of_second(second.frozen[0].getIntrusivePtr());
  root = second = {};
  CHECK_FALSE(of_second.expired());
  streamed.parameters->release(2);
  CHECK(of_second.expired());
  CHECK_FALSE(of_root.expired());
  // A root whose output is its parameter is not released; the next forward forgets it.
  streamed.forward({1, 2});
  CHECK(of_root.expired());
}

TEST_CASE("a directory that cannot hold the parameters is named with its option", "[runtime][engine][inference]") {
  const test::TempDir folder;
  offload::ParameterFileOptions options;
  options.directories = {folder / "absent"};
  options.content = "the parameters";
  const ParameterTable table = make_table();
  test::expect_error(ExitCode::kCannotCreate, {"/absent'", "No such file", "another directory: --nvme_path DIR"},
                     [&] { StreamedParameters(table, options, [](int, int64_t, const at::Tensor&) {}); });
}
