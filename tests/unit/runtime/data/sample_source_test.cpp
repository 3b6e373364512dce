#include "runtime/data/sample_source.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <catch2/catch.hpp>
#include <limits>

#include "base/bytes.hpp"
#include "numpy_samples.hpp"
#include "runtime/state/safetensors_writer.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::expect_error;
using test::TempDir;

namespace {

void save(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  std::vector<TensorDescription> descriptions;
  for (const auto& [name, tensor] : tensors) descriptions.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, descriptions);
  for (const auto& description : writer.order()) writer.write(tensors.at(description.name));
  writer.finish(false);
}

config::Data data_of(std::vector<std::string> train) {
  config::Data data;
  data.train = std::move(train);
  return data;
}

template <class T>
std::vector<T> sample(const SampleSource& source, size_t array, int64_t index) {
  std::vector<T> out(static_cast<size_t>(source.arrays()[array].sample_numel()));
  REQUIRE(out.size() * sizeof(T) == static_cast<size_t>(source.arrays()[array].sample_bytes()));
  source.read(array, index, out.data());
  return out;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Megatron's pair by hand: the header of megatron_file.hpp, lengths in tokens and places in bytes.
void write_megatron(const std::string& prefix, uint8_t type_code, const std::vector<int32_t>& lengths,
                    const std::vector<int64_t>& places, const std::string& tokens) {
  std::string index("MMIDIDX\0\0", 9);
  index += bytes_of<uint64_t>({1}) + static_cast<char>(type_code) + bytes_of<uint64_t>({lengths.size(), 2});
  index += bytes_of(lengths) + bytes_of(places) + bytes_of<int64_t>({0, static_cast<int64_t>(lengths.size())});
  test::write_file(prefix + ".idx", index);
  test::write_file(prefix + ".bin", tokens);
}

}  // namespace

TEST_CASE("several files of a glob are one data set in sorted order", "[runtime][data][sample_source]") {
  TempDir dir;
  save(dir / "part2.safetensors", {{"x", at::arange(6, at::kFloat).view({3, 2})}, {"y", at::arange(3)}});
  save(dir / "part1.safetensors", {{"x", at::full({1, 2}, 9.0, at::kFloat)}, {"y", at::full({1}, 9, at::kLong)}});
  const auto source = open_train_samples(data_of({dir / "part*.safetensors"}));
  REQUIRE(source->num_samples() == 4);
  REQUIRE(source->arrays().size() == 2);
  const size_t x = source->arrays()[0].name == "x" ? 0 : 1;
  CHECK(source->arrays()[x].sample_shape == std::vector<int64_t>{2});
  CHECK(sample<float>(*source, x, 0) == std::vector<float>{9, 9});
  CHECK(sample<float>(*source, x, 3) == std::vector<float>{4, 5});
  CHECK(sample<int64_t>(*source, 1 - x, 2) == std::vector<int64_t>{1});
  CHECK_THAT(source->describe(x, 3), Catch::Matchers::Contains("part2") && Catch::Matchers::Contains("row 2"));
}

TEST_CASE("files that do not fit each other are named", "[runtime][data][sample_source]") {
  TempDir dir;
  save(dir / "a.safetensors", {{"x", at::arange(4, at::kFloat).view({2, 2})}});
  save(dir / "b.safetensors", {{"x", at::arange(6, at::kFloat).view({2, 3})}});
  save(dir / "c.safetensors", {{"z", at::arange(4, at::kFloat).view({2, 2})}});
  save(dir / "d.safetensors", {{"x", at::arange(4, at::kFloat)}, {"y", at::arange(3)}});
  save(dir / "e.safetensors", {{"x", at::full({}, 1.0)}});
  auto open = [&](std::vector<std::string> names) {
    for (auto& name : names) name = dir / name;
    open_train_samples(data_of(names));
  };
  expect_error(ExitCode::kBadInput, {"a.safetensors", "b.safetensors", "(2, 2)", "(2, 3)"}, [&] {
    open({"a.safetensors", "b.safetensors"});
  });
  expect_error(ExitCode::kBadInput, {"different arrays", "c.safetensors"}, [&] {
    open({"a.safetensors", "c.safetensors"});
  });
  expect_error(ExitCode::kBadInput, {"'x' (4)", "'y' (3)", "d.safetensors"}, [&] { open({"d.safetensors"}); });
  expect_error(ExitCode::kBadInput, {"is a scalar"}, [&] { open({"e.safetensors"}); });
  expect_error(ExitCode::kNoInput, {"no data file matches", "q*.npy"}, [&] { open({"q*.npy"}); });
  expect_error(ExitCode::kNoInput, {"data file", "missing.npz"}, [&] { open({"missing.npz"}); });
  expect_error(ExitCode::kNoInput, {"is a directory"}, [&] { open({""}); });
}

TEST_CASE("npy files are arrays side by side when one is called like a label, else pieces",
          "[runtime][data][sample_source]") {
  TempDir dir;
  const auto bytes = *from_hex(kNpyX);
  const std::string content(bytes.begin(), bytes.end());
  for (const char* name : {"x.npy", "y.npy", "part0.npy", "part1.npy"}) test::write_file(dir / name, content);
  const auto named = open_train_samples(data_of({dir / "x.npy", dir / "y.npy"}));
  CHECK(named->arrays().size() == 2);
  CHECK(named->num_samples() == 3);
  const auto pieces = open_train_samples(data_of({dir / "part*.npy"}));
  CHECK(pieces->arrays().size() == 1);
  CHECK(pieces->num_samples() == 6);
  CHECK(sample<float>(*pieces, 0, 3) == std::vector<float>{0, 1});
}

TEST_CASE("a token stream is cut into samples with labels one further", "[runtime][data][sample_source]") {
  TempDir dir;
  config::Data data = data_of({dir / "a.bin", dir / "b.bin"});
  data.seq_len = 3;
  SECTION("across two files") {
    test::write_file(dir / "a.bin", bytes_of<uint16_t>({1, 2, 3, 4, 65535}));
    test::write_file(dir / "b.bin", bytes_of<uint16_t>({6, 7, 8, 9}));
    const auto source = open_train_samples(data);
    REQUIRE(source->num_samples() == 2);  // 9 tokens; a third sample would take 10
    CHECK(source->arrays()[0].name == "input_ids");
    CHECK(source->arrays()[1].name == "labels");
    CHECK(sample<int64_t>(*source, 0, 0) == std::vector<int64_t>{1, 2, 3});
    CHECK(sample<int64_t>(*source, 1, 0) == std::vector<int64_t>{2, 3, 4});
    CHECK(sample<int64_t>(*source, 0, 1) == std::vector<int64_t>{4, 65535, 6});
    CHECK(sample<int64_t>(*source, 1, 1) == std::vector<int64_t>{65535, 6, 7});
    CHECK_THAT(source->describe(0, 1), Catch::Matchers::Contains("a.bin") && Catch::Matchers::Contains("from token 3"));
  }
  SECTION("exactly one sample, in every dtype") {
    data.train = {dir / "a.bin"};
    const std::vector<int64_t> ids{1, 2, 3};
    data.dtype = "uint8";
    test::write_file(dir / "a.bin", bytes_of<uint8_t>({1, 2, 3, 4}));
    CHECK(sample<int64_t>(*open_train_samples(data), 0, 0) == ids);
    data.dtype = "uint32";
    test::write_file(dir / "a.bin", bytes_of<uint32_t>({1, 2, 3, 4000000000U}));
    CHECK(sample<int64_t>(*open_train_samples(data), 1, 0) == std::vector<int64_t>{2, 3, 4000000000});
    data.dtype = "int32";
    test::write_file(dir / "a.bin", bytes_of<int32_t>({1, 2, 3, -4}));
    CHECK(sample<int64_t>(*open_train_samples(data), 1, 0) == std::vector<int64_t>{2, 3, -4});
    data.dtype = "int64";
    test::write_file(dir / "a.bin", bytes_of<int64_t>({1, 2, 3, 4}));
    CHECK(open_train_samples(data)->num_samples() == 1);
  }
  SECTION("streams that do not work out") {
    data.train = {dir / "a.bin"};
    test::write_file(dir / "a.bin", bytes_of<uint16_t>({1, 2, 3}));
    for (const int64_t seq_len : {int64_t{3}, std::numeric_limits<int64_t>::max()}) {
      data.seq_len = seq_len;
      expect_error(ExitCode::kBadInput, {"has 3 tokens", std::to_string(seq_len) + " needs one token more"},
                   [&] { open_train_samples(data); });
    }
    test::write_file(dir / "a.bin", "odd");
    expect_error(ExitCode::kBadInput, {"3 bytes", "uint16"}, [&] { open_train_samples(data); });
    data.dtype = "float32";
    expect_error(ExitCode::kBadInput, {"'float32' cannot hold tokens"}, [&] { open_train_samples(data); });
    data.seq_len = 0;
    data.format = "tokens";
    expect_error(ExitCode::kBadInput, {"seq_len"}, [&] { open_train_samples(data); });
  }
}

TEST_CASE("synthetic numbers are a function of seed, array, sample and element", "[runtime][data][sample_source]") {
  std::vector<config::ArraySpec> arrays{{.name = "input_ids", .shape = {4}, .dtype = "int64", .low = 10, .high = 50304},
                                        {.name = "x", .shape = {3}, .low = -1, .high = 1},
                                        {.name = "labels", .like = "input_ids"}};
  // From the Python in docs/data.md.
  const auto source = make_synthetic_samples(arrays, 3);
  CHECK(sample<int64_t>(*source, 0, 5) == std::vector<int64_t>{38966, 20951, 41517, 34634});
  CHECK(sample<int64_t>(*source, 2, 5) == sample<int64_t>(*source, 0, 5));
  CHECK(sample<float>(*make_synthetic_samples(arrays, 0), 1, 2) ==
        std::vector<float>{0.011732910686541809f, 0.5978382533369786f, -0.6681947563706507f});
  CHECK(sample<int64_t>(*source, 0, 5) != sample<int64_t>(*source, 0, 6));
  CHECK(source->num_samples() == SampleSource::kEndless);
}

TEST_CASE("synthetic numbers reach both ends of a small range and nothing beyond", "[runtime][data][sample_source]") {
  const auto source = make_synthetic_samples({{.name = "x", .shape = {200}, .dtype = "int8", .low = -2, .high = 2}}, 0);
  const auto values = sample<int8_t>(*source, 0, 0);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  CHECK(*low == -2);
  CHECK(*high == 1);
}

TEST_CASE("synthetic arrays that cannot be made are refused", "[runtime][data][sample_source]") {
  auto refuse = [](config::ArraySpec array, const std::string& part) {
    expect_error(ExitCode::kBadInput, {"data.synthetic", part}, [&] { make_synthetic_samples({array}, 0); });
  };
  refuse({.name = "x", .shape = {1}, .dtype = "flaot32"}, "did you mean 'float32'?");
  refuse({.name = "x", .shape = {1}, .dtype = "uint8", .low = 0, .high = 257}, "0 <= x < 257");
  refuse({.name = "x", .shape = {1}, .dtype = "int64", .low = 3, .high = 3}, "low 3 must be below high 3");
  refuse({.name = "x", .shape = {-1}}, "negative");
  refuse({.name = "x", .like = "nothing"}, "no array of data.synthetic");
  refuse({.name = "x", .like = "x"}, "like itself");
  expect_error(ExitCode::kBadInput, {"data.synthetic", "for example"}, [] { make_synthetic_samples({}, 0); });
}

TEST_CASE("Megatron's data is a stream of tokens in the order of its index", "[runtime][data][sample_source]") {
  TempDir dir;
  config::Data data;
  data.seq_len = 5;
  SECTION("as DeepSpeed's builder writes it, by any of its names") {
    const std::string prefix = test::source_file("tests/data/megatron/tiny");
    for (const auto& name : {prefix, prefix + ".bin", prefix + ".idx", prefix + ".*"}) {
      data.train = {name};
      const auto source = open_train_samples(data);
      REQUIRE(source->num_samples() == 2);
      CHECK(sample<int64_t>(*source, 0, 0) == std::vector<int64_t>{1, 2, 3, 4, 5});
      CHECK(sample<int64_t>(*source, 1, 1) == std::vector<int64_t>{7, 8, 9, 10, 11});
    }
  }
  SECTION("sequences that lie in another order, and two data sets") {
    write_megatron(dir / "a", 4, {2, 3}, {12, 0}, bytes_of<int32_t>({3, 4, 5, 1, 2}));
    write_megatron(dir / "b", 8, {6}, {0}, bytes_of<uint16_t>({6, 7, 8, 9, 10, 65535}));
    data.train = {dir / "a", dir / "b"};
    data.format = "megatron";
    const auto source = open_train_samples(data);
    REQUIRE(source->num_samples() == 2);
    CHECK(sample<int64_t>(*source, 0, 0) == std::vector<int64_t>{1, 2, 3, 4, 5});
    CHECK(sample<int64_t>(*source, 1, 1) == std::vector<int64_t>{7, 8, 9, 10, 65535});
    CHECK_THAT(source->describe(0, 1), Catch::Matchers::Contains("b.bin"));
  }
  SECTION("pairs that do not fit") {
    data.train = {dir / "a"};
    data.format = "megatron";
    expect_error(ExitCode::kNoInput, {"a.idx"}, [&] { open_train_samples(data); });
    const auto tokens = bytes_of<uint16_t>({1, 2, 3, 4, 5, 6});
    write_megatron(dir / "a", 3, {4, 3}, {0, 8}, tokens);
    expect_error(ExitCode::kBadInput, {"a.bin", "12 bytes", "sequence 1 at byte 8 with 3 tokens"},
                 [&] { open_train_samples(data); });
    write_megatron(dir / "a", 8, {-6}, {0}, tokens);
    expect_error(ExitCode::kBadInput, {"-6 tokens"}, [&] { open_train_samples(data); });
    write_megatron(dir / "a", 9, {6}, {0}, tokens);
    expect_error(ExitCode::kBadInput, {"a.idx", "type 9"}, [&] { open_train_samples(data); });
    write_megatron(dir / "a", 8, {}, {}, tokens);
    expect_error(ExitCode::kBadInput, {"no sequence"}, [&] { open_train_samples(data); });
    std::string index("MMIDIDX\0\0", 9);
    test::write_file(dir / "a.idx", index + bytes_of<uint64_t>({1}) + '\x08' + bytes_of<uint64_t>({~0ULL, 2}));
    expect_error(ExitCode::kBadInput, {"truncated", "18446744073709551615 sequences"},
                 [&] { open_train_samples(data); });
    test::write_file(dir / "a.idx", index);
    expect_error(ExitCode::kBadInput, {"truncated"}, [&] { open_train_samples(data); });
    test::write_file(dir / "a.idx", std::string("TNTIDX\0\0", 8));
    expect_error(ExitCode::kBadInput, {"old form"}, [&] { open_train_samples(data); });
    test::write_file(dir / "a.idx", "something else");
    expect_error(ExitCode::kBadInput, {"MMIDIDX"}, [&] { open_train_samples(data); });
    data.seq_len = 0;
    expect_error(ExitCode::kBadInput, {"seq_len"}, [&] { open_train_samples(data); });
  }
}

TEST_CASE("synthetic integers are the same numbers in every type that holds them", "[runtime][data][sample_source]") {
  const auto numbers = [](const std::string& dtype, double low, double high) {
    return make_synthetic_samples({{.name = "x", .shape = {50}, .dtype = dtype, .low = low, .high = high}}, 7);
  };
  const auto wide = sample<int64_t>(*numbers("int64", 0, 2), 0, 3),
             signed_wide = sample<int64_t>(*numbers("int64", -9, 99), 0, 3);
  const auto same = [](const std::vector<int64_t>& expected, const auto& values) {
    return std::vector<int64_t>(values.begin(), values.end()) == expected;
  };
  CHECK(same(wide, sample<uint8_t>(*numbers("bool", 0, 2), 0, 3)));
  CHECK(same(wide, sample<uint8_t>(*numbers("uint8", 0, 2), 0, 3)));
  CHECK(same(signed_wide, sample<int8_t>(*numbers("int8", -9, 99), 0, 3)));
  CHECK(same(signed_wide, sample<int16_t>(*numbers("int16", -9, 99), 0, 3)));
  CHECK(same(signed_wide, sample<int32_t>(*numbers("int32", -9, 99), 0, 3)));
  const auto doubles = sample<double>(*numbers("float64", -1, 1), 0, 3);
  const auto floats = sample<float>(*numbers("float32", -1, 1), 0, 3);
  for (size_t i = 0; i < doubles.size(); ++i) CHECK(floats[i] == static_cast<float>(doubles[i]));
}

TEST_CASE("synthetic ranges that a type does not hold are refused", "[runtime][data][sample_source]") {
  const auto refusal = [](const std::string& dtype, double low, double high) {
    return test::message_of(ExitCode::kBadInput, "", [&] {
      make_synthetic_samples({{.name = "x", .shape = {1}, .dtype = dtype, .low = low, .high = high}}, 0);
    });
  };
  CHECK(refusal("bool", 0, 3) == "data.synthetic.x: no bool x has 0 <= x < 3");
  CHECK(refusal("int8", -129, 0) == "data.synthetic.x: no int8 x has -129 <= x < 0");
  CHECK(refusal("int16", 0, 32769) == "data.synthetic.x: no int16 x has 0 <= x < 32769");
  CHECK(refusal("int64", 0.5, 2) == "data.synthetic.x: low and high of int64 must be integers");
  CHECK(refusal("float32", 2, 1) == "data.synthetic.x: low 2 must be below high 1");
  CHECK(refusal("float64", 0, std::numeric_limits<double>::infinity()) ==
        "data.synthetic.x: low and high must be finite");
}

TEST_CASE("Megatron's type codes are read as Megatron and DeepSpeed write them", "[runtime][data][sample_source]") {
  TempDir dir;
  config::Data data;
  data.seq_len = 2;
  data.train = {dir / "a"};
  const auto ids = [&](uint8_t code, const std::string& tokens) {
    write_megatron(dir / "a", code, {3}, {0}, tokens);
    return sample<int64_t>(*open_train_samples(data), 0, 0);
  };
  CHECK(ids(1, bytes_of<uint8_t>({200, 2, 3})) == std::vector<int64_t>{200, 2});
  CHECK(ids(2, bytes_of<int8_t>({1, -2, 3})) == std::vector<int64_t>{1, -2});
  CHECK(ids(3, bytes_of<int16_t>({300, -2, 3})) == std::vector<int64_t>{300, -2});
  CHECK(ids(4, bytes_of<int32_t>({70000, 2, 3})) == std::vector<int64_t>{70000, 2});
  CHECK(ids(5, bytes_of<int64_t>({1, int64_t{1} << 40, 3})) == std::vector<int64_t>{1, int64_t{1} << 40});
  CHECK(ids(6, bytes_of<uint16_t>({60000, 2, 3})) == std::vector<int64_t>{60000, 2});  // DeepSpeed's
  CHECK(ids(7, bytes_of<uint32_t>({4000000000, 2, 3})) == std::vector<int64_t>{4000000000, 2});
  CHECK(ids(8, bytes_of<uint16_t>({60000, 2, 3})) == std::vector<int64_t>{60000, 2});  // Megatron-LM's
  CHECK(ids(8, bytes_of<int64_t>({1, 2, 3})) == std::vector<int64_t>{1, 2});           // DeepSpeed's uint64
  write_megatron(dir / "a", 6, {3}, {0}, bytes_of<double>({1, 2, 3}));
  CHECK(test::message_of(ExitCode::kBadInput, dir.path(), [&] { open_train_samples(data); }) ==
        "data file 'DIR/a.idx' has the element type 6, which is not a type of tokens");
  std::string index = test::read_file(dir / "a.idx");
  index[9] = 2;
  test::write_file(dir / "a.idx", index);
  CHECK(test::message_of(ExitCode::kBadInput, dir.path(), [&] { open_train_samples(data); }) ==
        "data file 'DIR/a.idx' has version 2; only version 1 is supported");
}

TEST_CASE("an array of numpy is a token stream when it is one row of integers", "[runtime][data][sample_source]") {
  TempDir dir;
  config::Data data = data_of({dir / "t.npy"});
  data.seq_len = 2;
  const auto npy = [&](const std::string& descr, const std::string& shape, const std::string& elements) {
    const std::string dict = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
    dir.write("t.npy", std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(dict.size()) + '\0' + dict + elements);
  };
  npy("<u2", "(3,)", bytes_of<uint16_t>({60000, 2, 3}));
  CHECK(sample<int64_t>(*open_train_samples(data), 0, 0) == std::vector<int64_t>{60000, 2});
  CHECK(sample<int64_t>(*open_train_samples(data), 1, 0) == std::vector<int64_t>{2, 3});
  const std::string expected = ", expected one dim of integers (or leave out data.seq_len and \"format\": \"tokens\")";
  npy("<i4", "(1, 3)", bytes_of<int32_t>({1, 2, 3}));
  CHECK(test::message_of(ExitCode::kBadInput, dir.path(), [&] { open_train_samples(data); }) ==
        "data file 'DIR/t.npy' cannot be a token stream: it has the shape (1, 3) and dtype Int" + expected);
  npy("<f4", "(3,)", bytes_of<float>({1, 2, 3}));
  CHECK(test::message_of(ExitCode::kBadInput, dir.path(), [&] { open_train_samples(data); }) ==
        "data file 'DIR/t.npy' cannot be a token stream: it has the shape (3) and dtype Float" + expected);
}

TEST_CASE("files of different kinds, and without arrays, are refused", "[runtime][data][sample_source]") {
  TempDir dir;
  const auto bytes = *from_hex(kNpyX);
  dir.write("x.npy", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  save(dir / "x.safetensors", {{"x", at::arange(6, at::kFloat).view({3, 2})}});
  save(dir / "none.safetensors", {});
  const auto refusal = [&](std::vector<std::string> names) {
    for (auto& name : names) name = dir / name;
    return test::message_of(ExitCode::kBadInput, dir.path(), [&] { open_train_samples(data_of(names)); });
  };
  CHECK(refusal({"x.npy", "x.safetensors"}) ==
        "the data files 'DIR/x.npy' and 'DIR/x.safetensors' are of different kinds");
  CHECK(refusal({"none.safetensors"}) == "data file 'DIR/none.safetensors' has no array");
}
